"""The graph in the time of steps without the profiler: what it costs is taken off many short parts of the host."""

from pathlib import Path

import numpy as np
import pytest

from perfkit.engine.step_graph.graph import KINDS, StepGraph
from perfkit.engine.step_graph.real_time import in_real_time, mean_step_ns
from tests.support.traces.step_graphs import graph_of_built
from tests.support.traces.trace_builder import TraceBuilder

STEPS, SHORT, SHORT_US, LONG_US = 4, 100, 10, 1000
STEP_US = SHORT * SHORT_US + LONG_US


def launching(folder: Path) -> StepGraph:
    """Return the graph of steps of a host that launches short kernels, then works for long; the device waits for it."""
    trace, number = TraceBuilder(0, 1), 0
    for step in range(STEPS):
        at = STEP_US * step
        trace.step(step, at, STEP_US)
        for place in range(SHORT):
            begin, number = at + SHORT_US * place, number + 1
            trace.op("aten::add", begin, SHORT_US).launch(number, begin + 2, 3).kernel("add", begin + 6, 1, number)
        trace.op("aten::tokenize", at + SHORT * SHORT_US, LONG_US)
    graph = graph_of_built(folder, trace)
    return graph.recorded or graph


def times_us(graph: StepGraph, name: str) -> float:
    chosen = graph.parts.name == graph.names.index(name)
    return float(np.sum(graph.parts.ns[chosen])) / 1000 / STEPS


def test_a_long_part_keeps_its_length(tmp_path: Path) -> None:
    graph = launching(tmp_path)
    measured_ns = mean_step_ns(graph)
    real = in_real_time(graph, measured_ns - 300_000)
    assert mean_step_ns(real) == pytest.approx(measured_ns - 300_000, abs=1)
    assert times_us(real, "aten::tokenize") == pytest.approx(LONG_US, rel=0.01)
    assert times_us(real, "aten::add") < times_us(graph, "aten::add") - 140


def test_recorded_steps_that_are_no_longer_are_kept(tmp_path: Path) -> None:
    graph = launching(tmp_path)
    assert in_real_time(graph, 1.5 * mean_step_ns(graph)) is graph


@pytest.mark.parametrize("added_us", [100, 400, 900])
def test_what_is_the_profilers_own_is_taken_off_first(tmp_path: Path, added_us: int) -> None:
    trace = TraceBuilder(0, 1)
    for step in range(STEPS):
        at = STEP_US * step
        trace.step(step, at, STEP_US)
        trace.op("aten::mm", at, 1000)
        trace.event("overhead", "Activity Buffer Request", at + 1000, 500, pid=-1, tid=0)
        trace.op("aten::add", at + 1500, 500)
    found = graph_of_built(tmp_path, trace)
    graph = found.recorded or found
    own = graph.parts.kind == KINDS.index("profiler")
    own_us = float(graph.parts.ns[own].sum()) / 1000 / STEPS
    real = in_real_time(graph, mean_step_ns(graph) - added_us * 1000)
    left_us = float(real.parts.ns[own].sum()) / 1000 / STEPS
    assert own_us == pytest.approx(500, rel=0.02)
    assert left_us == pytest.approx(max(0, own_us - added_us), abs=1)
    assert mean_step_ns(real) == pytest.approx(mean_step_ns(graph) - added_us * 1000, abs=2)
