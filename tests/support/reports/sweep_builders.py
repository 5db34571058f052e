"""Points and run folders for the tests of a sweep."""

from pathlib import Path
from typing import Any

import msgspec

from perfkit.records.manifest import Failure, RunManifest, World
from perfkit.storage.run_folder import write_manifest
from perfkit.tools.sweep.plan import Axis, SweepSpec, combinations, plan
from perfkit.tools.sweep.point import Point

CONFIG: dict[str, Any] = {"batch_size": 16, "source": "memory", "steps": 8, "compile": False, "inject": []}


def wanted(**given: Any) -> SweepSpec:
    defaults: dict[str, Any] = {
        "workload": "gpt",
        "ranks": (1, 2),
        "scaling": ("weak",),
        "axes": (Axis("source", ("memory",)),),
        "repeats": 1,
        "options": (),
        "trace_dir": "traces/s",
    }
    return SweepSpec(**(defaults | given))


def config_of(asked: SweepSpec, varied: dict[str, str]) -> dict[str, Any]:
    """Return what `perfkit run` would make of a combination."""
    place = {"trace_dir": asked.trace_dir, "data_dir": f"{asked.trace_dir}/.data", "name": None, "config": None}
    return CONFIG | place | varied


def points_of(asked: SweepSpec) -> list[Point]:
    return plan(asked, [config_of(asked, varied) for varied in combinations(asked)])


def leave_run(folder: Path, point: Point, state: str = "completed", **changes: Any) -> Path:
    run = folder / point.name
    run.mkdir(parents=True)
    failure = Failure(rank=1, message="no\nluck") if state == "failed" else None
    config = msgspec.json.decode(msgspec.json.encode(point.config | {"trace_dir": str(folder), "name": run.name}))
    manifest = RunManifest(
        run=run.name,
        state=state,  # type: ignore[arg-type]  # one of them
        failure=failure,
        workload=point.workload,
        source="memory",
        started_at="2026-01-01T00:00:00+00:00",
        config=config,
        versions={},
        backend="gloo",
        device="cpu",
        world=World(world_size=point.ranks, nodes=1, launcher="hydra", local_world_sizes=[point.ranks]),
    )
    write_manifest(run, msgspec.structs.replace(manifest, **changes))
    return run
