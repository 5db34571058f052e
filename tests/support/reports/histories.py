"""Run folders with known step times and start times, for tests of histories."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from perfkit.records.manifest import RunManifest, World
from perfkit.storage.run_folder import write_manifest
from tests.support.traces.trace_builder import TraceBuilder

_FIRST = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
STEPS = 6


def make_history(
    root: Path, step_ms: Sequence[float], commits: Sequence[str | None] = (), first_day: int = 0, **changes: Any
) -> Path:
    """Write one run per step time, a day apart; return their folder."""
    for number, ms in enumerate(step_ms):
        commit = commits[number] if commits else None
        made = {"started_at": (_FIRST + timedelta(days=first_day + number)).isoformat(), "commit": commit} | changes
        make_run_folder(root / f"run-{number:02d}", ms, **made)
    return root


def make_run_folder(folder: Path, step_ms: float, **changes: Any) -> Path:
    """Write a completed run of one rank, whose steps differ by a hundredth."""
    folder.mkdir(parents=True)
    fields: dict[str, Any] = {
        "run": folder.name,
        "state": "completed",
        "workload": "gpt",
        "source": "memory",
        "started_at": _FIRST.isoformat(),
        "config": {"batch_size": 4, "trace_dir": str(folder.parent), "name": folder.name},
        "versions": {"torch": "2.13.0"},
        "backend": "gloo",
        "device": "cpu",
        "world": World(world_size=1, nodes=1, launcher="none", local_world_sizes=[1]),
    }
    write_manifest(folder, RunManifest(**(fields | changes)))
    trace, at = TraceBuilder(world_size=1, backend="gloo"), 0
    for number in range(STEPS):
        us = round(step_ms * 1000 * (1 + number / 100 / STEPS))
        trace.step(number, at, us).op("aten::mm", at, us - 200)
        at += us
    trace.write(folder / "rank0.json.gz")
    return folder
