"""Which steps a graph has: all of a small trace, some in the middle of a large one, those that all ranks have."""

from pathlib import Path

import numpy as np
import pytest

from perfkit.engine.run_context import RunContext
from perfkit.engine.runs.rank_reports import NamedSummary
from perfkit.engine.step_graph.rank.build import MOST_EVENTS, most_graph_events
from perfkit.engine.step_graph.replay import critical_path, replay
from perfkit.engine.step_graph.run_graph import RunGraph
from perfkit.engine.trace_summary import TraceSummary
from perfkit.pipeline.summarize import summarize_trace
from perfkit.trace.reader import read_trace
from tests.support.traces.step_graphs import on_path
from tests.support.traces.trace_builder import BASE_NS, TraceBuilder

STEP_US = 400


def rank(number: int, steps: range, late: int = 0, host: str = "one", ahead_us: int = 0) -> TraceBuilder:
    """A rank that computes for 100 us and `late` us more in each step of 400 us, reduces, and updates."""
    trace = TraceBuilder(number, 2, backend="gloo", host_name=host, base_ns=BASE_NS + 1000 * ahead_us)
    for step in steps:
        at = STEP_US * step
        trace.step(step, at, STEP_US - 10).op("aten::mm", at, 100 + late).op("c10d::allreduce_", at + 100 + late, 4)
        trace.gloo("all_reduce", at + 105 + late, 195 - late).op("aten::add", at + 310, 50)
    return trace


def summary(folder: Path, trace: TraceBuilder, events: int | None = None) -> TraceSummary:
    return summarize_trace(read_trace(trace.write(folder / "rank.json")), "rank.json", graph_events=events)


def run_graph(*ranks: TraceSummary) -> RunGraph:
    """Return the graph of the steps as they were recorded: the last one is shorter, so the mean step is."""
    found = RunContext([NamedSummary(f"rank{number}.json", one) for number, one in enumerate(ranks)]).graph
    return found._replace(graphs=tuple(graph.recorded or graph for graph in found.graphs))


@pytest.mark.parametrize(
    ("events", "steps"), [(5 * 7, list(range(7))), (34, [1, 2, 3, 4, 5]), (20, [2, 3, 4]), (1, [3])]
)
def test_the_steps_in_the_middle_are_chosen(tmp_path: Path, events: int, steps: list[int]) -> None:
    graph = summary(tmp_path, rank(0, range(7)), events).graph
    assert graph is not None
    assert graph.steps == steps


def test_a_run_of_many_ranks_has_less_of_each() -> None:
    assert most_graph_events(None) == most_graph_events(8) == MOST_EVENTS
    assert most_graph_events(4000) == 1000


def test_the_path_of_some_steps_is_that_part_of_the_whole(tmp_path: Path) -> None:
    ranks = [summary(tmp_path, rank(number, range(7), 50 * number), 20) for number in range(2)]
    found = run_graph(*ranks)
    assert found.graph is not None
    assert found.graph.steps == (2, 3, 4)
    assert np.diff(found.graph.step_ends(found.graph.nodes.end)).tolist() == [STEP_US * 1000] * 3
    path = critical_path(found.graph)
    assert (replay(found.graph) == found.graph.nodes.end).all()
    assert set(found.graph.nodes.rank[path.node[found.graph.duration_ns[path.node] == 150_000]].tolist()) == {1}
    assert on_path(found.graph)["aten::mm"] == 3 * 150


def test_ranks_with_other_steps_share_those_that_both_have(tmp_path: Path) -> None:
    first = summary(tmp_path, rank(0, range(5)))
    second = summary(tmp_path, rank(1, range(2, 7), 50))
    found = run_graph(first, second)
    assert found.graph is not None
    assert found.graph.steps == (2, 3, 4)
    assert (replay(found.graph) == found.graph.nodes.end).all()
    assert on_path(found.graph)["aten::mm"] == 3 * 150


def test_of_several_traces_per_rank_the_one_in_the_middle_counts(tmp_path: Path) -> None:
    cycles = (range(2), range(4, 6))
    named = [
        NamedSummary(f"rank{number}.cycle{cycle}.json", summary(tmp_path, rank(number, steps, 50 * number)))
        for number in range(2)
        for cycle, steps in enumerate(cycles)
    ]
    graph = RunContext(named).graph.graph
    assert graph is not None
    assert graph.steps == (4, 5)
    assert graph.violated == {}
    assert on_path(graph)["aten::mm"] == 2 * 150


def test_without_a_common_step_there_is_no_graph(tmp_path: Path) -> None:
    found = run_graph(summary(tmp_path, rank(0, range(2))), summary(tmp_path, rank(1, range(3, 5))))
    assert found.graph is None
    assert found.reason == "different_steps"


@pytest.mark.parametrize("ahead_us", [-70_000, 250_000])
def test_clocks_of_other_hosts_are_aligned(tmp_path: Path, ahead_us: int) -> None:
    first = summary(tmp_path, rank(0, range(5)))
    second = summary(tmp_path, rank(1, range(5), 50, "two", ahead_us))
    graph = run_graph(first, second).graph
    assert graph is not None
    assert graph.violated == {}
    assert on_path(graph)["aten::mm"] == 5 * 150
    assert np.diff(graph.step_ends(graph.nodes.end)).tolist() == [STEP_US * 1000] * 4 + [(STEP_US - 10) * 1000]


def test_ranks_whose_clocks_nothing_links_are_left_out(tmp_path: Path) -> None:
    first = summary(tmp_path, rank(0, range(3)))
    trace = TraceBuilder(1, 2, backend="gloo", host_name="two")
    for step in range(3):
        trace.step(step, STEP_US * step, 390).op("aten::mm", STEP_US * step, 100)
    found = run_graph(first, summary(tmp_path, trace))
    assert found.unaligned == [1]
    assert found.graph is not None
    assert found.graph.ranks == (0,)
