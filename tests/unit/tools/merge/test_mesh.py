"""Timelines of runs with a mesh: order and names of the ranks, dimensions, micro-batches and bubbles."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

import perfkit
from perfkit.options.mesh import MeshLayout
from perfkit.records.manifest import World
from perfkit.storage.run_folder import list_files, write_manifest
from perfkit.tools.merge.merge import merge
from perfkit.tools.merge.tracks import coordinate, rank_name
from tests.support.manifests import make_manifest
from tests.support.traces.pipeline_builder import gpipe, traces
from tests.support.traces.trace_builder import TraceBuilder
from tests.support.traces.trace_processor import TraceProcessor, needs_trace_processor, slices

MESH = {"pp": 2, "dp": 2, "tp": 2}


def test_ranks_are_ordered_by_data_parallel_rank_then_stage_then_tensor_rank() -> None:
    ordered = sorted(range(8), key=lambda rank: list(coordinate(rank, MESH).values()))
    assert [rank_name(rank, MESH) for rank in ordered] == [
        *("dp0 pp0 tp0 (rank 0)", "dp0 pp0 tp1 (rank 1)", "dp0 pp1 tp0 (rank 4)", "dp0 pp1 tp1 (rank 5)"),
        *("dp1 pp0 tp0 (rank 2)", "dp1 pp0 tp1 (rank 3)", "dp1 pp1 tp0 (rank 6)", "dp1 pp1 tp1 (rank 7)"),
    ]


@pytest.mark.parametrize("mesh", [{}, {"dp": 8}, {"dp": 8, "tp": 1}, {"pp": 2, "dp": 2}, {"pp": 0, "dp": 9}])
def test_without_a_mesh_that_has_the_rank_it_is_its_number(mesh: dict[str, int]) -> None:
    assert rank_name(7, mesh) == "rank 7"


@needs_trace_processor
def test_micro_batches_and_bubbles_have_a_track(tmp_path: Path) -> None:
    builders = traces(gpipe(2, 2), [lambda _, kind: 100 if kind == "F" else 200] * 2)
    for rank, builder in enumerate(builders):
        builder.write(tmp_path / f"rank{rank}.json")
    output = tmp_path / "merged.pftrace"
    merge(tmp_path, output, steps="1")
    timeline = TraceProcessor(output)
    assert timeline.errors() == {}
    shown = slices(timeline, "process = 'pp0 (rank 0)' and thread = 'perfkit: pipeline'")
    begin = min(int(str(row["ts"])) for row in shown)
    assert [(row["name"], (int(str(row["ts"])) - begin) // 1000, int(str(row["dur"])) // 1000) for row in shown] == [
        ("forward 0, stage 0", 0, 100),
        ("forward 1, stage 0", 100, 100),
        ("bubble", 200, 300),
        ("backward 0, stage 0", 500, 200),
        ("backward 1, stage 0", 700, 200),
    ]


@pytest.mark.parametrize(("mesh", "linked"), [({"pp": 2, "dp": 2}, 2), ({"dp": 4}, 0), ({"pp": 2**40, "dp": 2}, 0)])
def test_sends_are_linked_with_receives_as_in_the_analysis(tmp_path: Path, mesh: dict[str, int], linked: int) -> None:
    for rank in range(4):
        builder = TraceBuilder(rank, 4, backend="gloo", host_name="a").header(perfkit={"mesh": mesh}).step(0, 0, 900)
        builder.gloo("send" if rank < 2 else "recv", 100, 50).op("aten::mm", 300, 50).write(
            tmp_path / f"rank{rank}.json"
        )
    output = tmp_path / "merged.json"
    merge(tmp_path, output)
    events = json.loads(output.read_text())["traceEvents"]
    assert sum(event["ph"] == "f" for event in events) == linked
    (run,) = perfkit.analyze(tmp_path, cache=False).runs
    assert run.cross_rank is not None
    assert run.cross_rank.matched == 2 * linked


def test_the_mesh_is_that_of_run_json(tmp_path: Path) -> None:
    """Without one, it is that of the headers: a timeline and an analysis take the same."""
    for rank in range(4):
        builder = TraceBuilder(rank, 4, backend="gloo", host_name="a").header(perfkit={"mesh": {"dp": 4}})
        builder.step(0, 0, 900).gloo("send" if rank < 2 else "recv", 100, 50).op("aten::mm", 300, 50).write(
            tmp_path / f"rank{rank}.json"
        )
    mesh = MeshLayout(sizes={"pp": 2, "dp": 2}).record()
    world = World(world_size=4, nodes=1, launcher="none", local_world_sizes=[4])
    manifest = replace(make_manifest("completed"), world=world, mesh=mesh, files=list_files(tmp_path))
    write_manifest(tmp_path, manifest)
    output = tmp_path / "merged" / "merged.json"
    merge(tmp_path, output)
    events = json.loads(output.read_text())["traceEvents"]
    assert sum(event["ph"] == "f" for event in events) == 2
    assert {"dp1 pp0 (rank 1)"} <= {event["args"].get("name") for event in events if event["ph"] == "M"}
    (run,) = perfkit.analyze(tmp_path, cache=False).runs
    assert run.cross_rank is not None
    assert run.cross_rank.matched == 4


@needs_trace_processor
def test_collectives_are_shown_by_dimension(tmp_path: Path) -> None:
    for rank in range(2):
        builder = TraceBuilder(rank, 2).header(perfkit={"mesh": {"tp": 2}}).step(0, 0, 900)
        for number, ranks in enumerate(((0, 1), ())):
            at, group = 100 * number, str(number)
            builder.record_param_comms("allreduce", at, 30, group=group, ranks=ranks, group_description="undefined")
            builder.launch(number, at + 10, 5).kernel("ncclDevKernel_AllReduce", at + 40, 40, number)
        builder.write(tmp_path / f"rank{rank}.json")
    output = tmp_path / "merged.pftrace"
    merge(tmp_path, output)
    timeline = TraceProcessor(output)
    assert timeline.errors() == {}
    found = slices(timeline, "process = 'tp0 (rank 0)' and thread = 'perfkit: communication by dimension'")
    assert [row["name"] for row in found] == ["tp", "unknown dimension"]
