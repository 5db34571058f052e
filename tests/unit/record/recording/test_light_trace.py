"""Light traces: the same breakdown, collectives and late ranks as the whole ones, in a bounded size."""

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import perfkit
from perfkit.pipeline.summarize import Options, summarize_trace
from perfkit.record.recording import light_trace
from perfkit.record.recording.light_trace import join_neighbours
from perfkit.records.rank import RankReport, StepBreakdown
from perfkit.trace.reader import read_trace
from tests.support.clusters.cluster import Cluster, Faults, simulate
from tests.support.clusters.programs import Model
from tests.support.traces.light import lighten

_ROOT = Path(__file__).parents[4]
_TRACES = (
    "traces/sample-hdf5/rank1.json.gz",
    "tests/data/runs/h100/item/rank0.json.gz",
    "tests/data/runs/h100/graphs/rank0.json.gz",
    "tests/data/runs/h100/nccl/rank0.json.gz",
    "tests/data/traces/gpu-dlrm-8of8/rank1.json.gz",
    "tests/data/traces/nccl-metadata-1of2/rank0.json.gz",
    "tests/data/traces/small/mi250-three-steps.json.gz",
)


def breakdown(steps: list[StepBreakdown]) -> list[Any]:
    return [(step.step, step.start_ns, step.wall_ns, step.exposed_ns, step.total_ns) for step in steps]


def both(folder: Path, trace: str) -> tuple[Path, Path]:
    """Return a trace and its light one."""
    whole, light = folder / "whole.json", folder / "light.json"
    whole.write_bytes(gzip.decompress((_ROOT / trace).read_bytes()))
    shutil.copy(whole, light)
    lighten(light)
    return whole, light


@pytest.mark.parametrize("trace", _TRACES)
def test_a_light_trace_has_the_breakdown_and_the_collectives_of_the_whole_one(trace: str, tmp_path: Path) -> None:
    whole, light = (
        summarize_trace(read_trace(path), path.name, Options(subjects=("idle",))) for path in both(tmp_path, trace)
    )
    assert breakdown(light.steps) == breakdown(whole.steps)
    assert light.collectives == whole.collectives
    assert light.idle.kernels == whole.idle.kernels
    known = {"launch_bound", "dependency"} if whole.has_device else set()
    assert {row.cause for row in light.idle.causes} <= {"unknown", *known}
    assert {finding.code for finding in light.findings} <= {finding.code for finding in whole.findings}


def test_what_a_step_leaves_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, light = both(tmp_path, "tests/data/runs/h100/item/rank0.json.gz")
    steps = 4  # three, and one that warms up
    unbounded = light.stat().st_size
    monkeypatch.setattr(light_trace, "MOST_BYTES", unbounded // (3 * steps))
    shutil.copy(whole, light)
    lighten(light)
    assert light.stat().st_size < unbounded / 2
    found, usual = (summarize_trace(read_trace(path), path.name, Options(subjects=())) for path in (light, whole))
    for step, of_whole in zip(found.steps, usual.steps, strict=True):
        # Only pauses between kernels are lost, the shortest first.
        assert step.wall_ns == of_whole.wall_ns
        assert step.exposed_ns.memcpy == of_whole.exposed_ns.memcpy
        assert 0 <= step.exposed_ns.compute - of_whole.exposed_ns.compute < 0.1 * of_whole.wall_ns


def test_allocations_are_left_out(tmp_path: Path) -> None:
    with torch.profiler.profile(profile_memory=True) as recorded:
        torch.ones(64, 64) @ torch.ones(64, 64)
    path = tmp_path / "trace.json"
    recorded.export_chrome_trace(str(path))
    assert "[memory]" in path.read_text(encoding="utf-8")
    lighten(path)
    assert "[memory]" not in path.read_text(encoding="utf-8")


def test_neighbours_with_the_shortest_pauses_are_joined_first() -> None:
    lane, start, end = np.array([0, 0, 0, 1, 0]), np.array([0, 11, 30, 31, 90]), np.array([10, 20, 40, 35, 99])
    joined = join_neighbours(lane, start, end, 4)
    assert list(zip(joined.first.tolist(), joined.end.tolist(), joined.merged.tolist(), strict=True)) == [
        (0, 20, 2),
        (2, 40, 1),
        (4, 99, 1),
        (3, 35, 1),
    ]
    assert len(join_neighbours(lane, start, end, 1).first) == 2  # no lane is joined with another


@pytest.mark.parametrize("faults", [Faults(device={1: 1.2}), Faults(work_us={2: 5_000})], ids=["device", "host"])
def test_a_late_light_rank_is_found_with_the_same_size(faults: Faults, tmp_path: Path) -> None:
    model = Model(kernels=4, kernel_us=300, transfer_us={"dp": 1500})
    simulate(Cluster("ddp", {"dp": 4}, model, faults)._replace(steps=5), tmp_path / "full")
    shutil.copytree(tmp_path / "full", tmp_path / "light")
    for rank in (1, 2, 3):
        lighten(tmp_path / "light" / f"rank{rank}.json")
    (full,), (light,) = (perfkit.analyze(tmp_path / name).runs for name in ("full", "light"))
    compared = [one.cross_rank for one in (full, light) if one.cross_rank is not None]
    named = [[(row.rank, row.lag_ns, row.category, row.every) for row in one.stragglers] for one in compared]
    assert named[0] == named[1] != []
    assert [breakdown(rank.steps) for rank in light.ranks] == [breakdown(rank.steps) for rank in full.ranks]
    assert [rank.light for rank in light.ranks] == [False, True, True, True]
    assert all(row.work is None for row in compared[1].stragglers)  # why, only its operators would tell
    assert light.ranks[0].idle == full.ranks[0].idle


def record(folder: Path, **options: Any) -> RankReport:
    with perfkit.profile(folder, schedule="wait=0,warmup=1,active=2", **options) as prof:
        for _ in range(4):
            with prof.phase("forward"):
                torch.ones(64, 64) @ torch.ones(64, 64)
            prof.step()
    ((rank,),) = (run.ranks for run in perfkit.analyze(folder).runs)
    return rank


def test_a_light_rank_records_when_operators_ran_but_not_which(tmp_path: Path) -> None:
    rank = record(tmp_path / "light", detail="light")
    assert rank.light
    assert rank.operators == []
    assert rank.work is None
    assert all(step.exposed_ns.compute > 0 for step in rank.steps)
    assert all(step.idle_ns.unknown == step.exposed_ns.overhead for step in rank.steps)
    manifest = json.loads((tmp_path / "light/run.json").read_text())
    assert manifest["config"]["detail"] == "light"
    trace = tmp_path / "light/rank0.json.gz"
    assert manifest["ranks"][0]["trace_bytes"] == trace.stat().st_size
    assert b"aten::" not in gzip.decompress(trace.read_bytes())


def test_the_ranks_that_are_named_record_fully(tmp_path: Path) -> None:
    rank = record(tmp_path / "full", trace_ranks="0")
    assert not rank.light
    assert any(row.name == "aten::mm" for row in rank.operators)
