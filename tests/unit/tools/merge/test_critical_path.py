"""The critical path on a merged timeline: a track of each rank that it runs through, together as long as the path."""

import json
from pathlib import Path
from typing import Any

import numpy as np

import perfkit
from tests.support.traces.step_graphs import graph_of_run
from tests.support.traces.trace_builder import TraceBuilder

SAMPLE = Path(__file__).parents[4] / "traces" / "sample-memory"


def path_slices(timeline: Path) -> list[dict[str, Any]]:
    events = json.loads(timeline.read_bytes())["traceEvents"]
    named = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    return [
        event
        for event in events
        if event["ph"] == "X" and named[event["pid"], event["tid"]] == "perfkit: critical path"
    ]


def test_the_tracks_cover_the_path_once(tmp_path: Path) -> None:
    perfkit.merge(SAMPLE, tmp_path / "all.json")
    graph = graph_of_run(SAMPLE).graph
    assert graph is not None
    begin, *_, end = (graph.recorded or graph).step_ends((graph.recorded or graph).nodes.end).tolist()
    slices = sorted(path_slices(tmp_path / "all.json"), key=lambda one: float(one["ts"]))
    assert len({one["pid"] for one in slices}) == 2
    assert abs(sum(float(one["dur"]) for one in slices) * 1000 - (end - begin)) < len(slices)
    start, end = (np.array([float(one["ts"]) + more * float(one["dur"]) for one in slices]) for more in (0, 1))
    assert np.allclose(start[1:], end[:-1], atol=0.01)


def test_only_the_selected_steps_are_shown(tmp_path: Path) -> None:
    perfkit.merge(SAMPLE, tmp_path / "one.json", steps="3")
    perfkit.merge(SAMPLE, tmp_path / "all.json")
    one, every = path_slices(tmp_path / "one.json"), path_slices(tmp_path / "all.json")
    assert 0 < len(one) < len(every)


def test_slices_are_called_what_ran(tmp_path: Path) -> None:
    builder = TraceBuilder(world_size=1).step(0, 0, 20).launch(1, 5, 5).kernel("gemm", 12, 100, 1)
    perfkit.merge(builder.write(tmp_path / "rank0.json"), tmp_path / "out.json")
    found = {one["name"]: float(one["dur"]) for one in path_slices(tmp_path / "out.json")}
    assert found["gemm"] == 100
    assert found["from launch to start"] == 7
