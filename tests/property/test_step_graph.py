"""The graph of a step gives the measured times, and its critical path is as long as the step, on any trace."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from perfkit.engine.run_context import RunContext
from perfkit.engine.runs.rank_reports import NamedSummary
from perfkit.engine.step_graph.graph import ORIGIN, StepGraph
from perfkit.engine.step_graph.modules import NO_MODULE
from perfkit.engine.step_graph.rank.table import ModuleOwners
from perfkit.engine.step_graph.real_time import in_real_time, mean_step_ns
from perfkit.engine.step_graph.replay import critical_path, replay, slack
from perfkit.errors import TraceError
from perfkit.pipeline.summarize import summarize_trace
from perfkit.subjects.critical_path.summarize import MOST_SPANS, summarize_path
from perfkit.trace.reader import read_trace
from tests.property.test_work import attributable
from tests.support.traces import generated_traces as traces
from tests.support.traces import trace_builder
from tests.support.traces.every_trace import REAL, every_real_trace
from tests.support.traces.step_graphs import graph_of, run_graph


def check(graph: StepGraph) -> None:
    nodes, edges, parts = graph.nodes, graph.edges, graph.parts
    assert (nodes.end >= nodes.start).all()
    assert (edges.lag_ns >= 0).all()
    assert (edges.source < edges.target).all()
    assert (replay(graph) == nodes.end).all()
    length = np.zeros(len(nodes.start), np.int64)
    np.add.at(length, parts.node, parts.ns)
    assert (length == graph.duration_ns).all()
    assert ((graph.recorded or graph).parts.ns > 0).all()
    assert ((parts.module >= NO_MODULE) & (parts.module < len(graph.modules))).all()
    assert all(module.parent < place for place, module in enumerate(graph.modules))
    check_summary(graph)
    room = slack(graph)
    assert (room >= 0).all()
    path = critical_path(graph)
    total_ns = graph.duration_ns[path.node].sum() + edges.lag_ns[path.edge].sum()
    assert total_ns == nodes.end[graph.sink] - nodes.end[ORIGIN]
    assert (room[path.node] == 0).all()
    assert (np.diff(graph.step_ends(nodes.end)) >= 0).all()


def check_summary(graph: StepGraph) -> None:
    """Every division of the path adds up to it, and the drawn step has no gap."""
    path = summarize_path(graph, len(graph.steps), 0, [])
    for rows in (path.kinds, path.ranks, path.names):
        assert sum(row.total_ns for row in rows) == path.total_ns
    if any(module.is_module for module in graph.modules):
        assert sum(row.total_ns for row in path.modules if row.depth == 0) == path.total_ns
        assert sum(row.self_ns for row in path.modules) == path.total_ns
    else:
        assert path.modules == []
    if path.drawn is not None:
        at = 0
        for span in path.drawn.spans:
            assert span.start_ns == at
            assert span.ns > 0
            assert span.rank in graph.ranks
            at += span.ns
        assert at == path.drawn.total_ns
        assert len(path.drawn.spans) <= MOST_SPANS


def check_changes(graph: StepGraph, random: np.random.Generator, count: int) -> None:
    """A node that takes longer by `d` delays the end by `d` less its slack."""
    end_ns = replay(graph)
    room = slack(graph)
    for node in random.integers(1, graph.sink + 1, count).tolist():
        longer = int(random.choice([1, int(min(room[node], 10**9)), int(min(room[node], 10**9)) + 1, 10**7]))
        duration_ns = graph.duration_ns.copy()
        duration_ns[node] += longer
        delayed = replay(graph, duration_ns)[graph.sink] - end_ns[graph.sink]
        assert delayed == max(0, longer - room[node]), (node, longer)


def check_real_time(graph: StepGraph) -> None:
    """Brought to another time, the mean step takes that; each node still begins when what it waits for has ended."""
    measured_ns = mean_step_ns(graph)
    for factor in (0.3, 0.995, 1.0, 2.5):
        found = in_real_time(graph, factor * measured_ns)
        if factor >= 1.0 or not measured_ns:
            assert found is graph
            continue
        nodes, parts = found.nodes, found.parts
        # Clocks that are decades apart leave no exact nanoseconds to a product.
        rounding_ns = 1 + 2.0**-51 * float(graph.nodes.end.max() - graph.nodes.start.min())
        assert mean_step_ns(found) == pytest.approx(factor * measured_ns, abs=rounding_ns)
        assert (found.edges.lag_ns >= 0).all()
        assert (replay(found) == nodes.end).all()
        length = np.zeros(len(nodes.start), np.int64)
        np.add.at(length, parts.node, parts.ns)
        assert (length == found.duration_ns).all()
        assert (parts.ns >= 0).all()
        assert found.recorded is graph


@traces.slow_to_generate
@given(document=traces.traces(), seed=st.integers(0, 99))
def test_generated_traces(document: dict[str, Any], seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = trace_builder.write(document, tmp_path_factory.getbasetemp() / "generated.json")
    try:
        found = run_graph(path)
    except TraceError:  # no step and no work
        return
    if (graph := found.graph) is None:
        assert found.reason is None  # steps of no duration
        return
    check(graph)
    check_real_time(graph)
    check_changes(graph, np.random.default_rng(seed), 3)


def host_event(category: str, name: str, ts: int, dur: int) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 1000, "tid": 1, "ts": ts, "dur": dur, "args": {}}


def loaders_in_each_other() -> dict[str, Any]:
    """Return a trace in which an annotation of a loader ends within another one, before a module's call."""
    multi, single = (
        f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__" for kind in ("MultiProcessing", "SingleProcess")
    )
    events = [
        host_event("cpu_op", "aten::mm", 0, 17),
        host_event("user_annotation", multi, 33, 2),
        host_event("python_function", "nn.Module: A_0", 39, 0),
        host_event("user_annotation", single, 32, 8),
        host_event("cpu_op", "aten::mm", 50, 1),
    ]
    return {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}, "traceEvents": events}


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=8)
@given(document=attributable())
@example(document=loaders_in_each_other())
def test_generated_modules(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    """Calls of modules divide the parts of the graph, and change neither its times nor their causes and names."""
    path = trace_builder.write(document, tmp_path_factory.getbasetemp() / "modules.json")
    try:
        found = run_graph(path)
    except TraceError:  # no step and no work
        return
    if (graph := found.graph) is None:
        assert found.reason is None  # steps of no duration
        return
    check(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModuleOwners, "bounds", lambda *_: np.zeros(0, np.int64))
        bare = graph_of(path)
    assert without_modules(graph) == without_modules(bare)


def without_modules(graph: StepGraph) -> dict[tuple[int, int, str], int]:
    """Return the time of each node by kind and name."""
    parts = graph.parts
    found: Counter[tuple[int, int, str]] = Counter()
    for node, kind, name, ns in zip(
        parts.node.tolist(), parts.kind.tolist(), parts.name.tolist(), parts.ns.tolist(), strict=True
    ):
        found[node, kind, graph.names[name]] += ns
    return found


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=8)
@given(documents=st.tuples(*(traces.traces(max_groups=9) for _ in range(3))), seed=st.integers(0, 99))
def test_generated_ranks(
    documents: tuple[dict[str, Any], ...], seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Collectives that were made up match by chance, and often contradict each other."""
    paths = []
    for rank, document in enumerate(documents):
        document["distributedInfo"] = {"backend": "gloo", "rank": rank, "world_size": len(documents)}
        document |= {"host_name": f"host{rank % 2}", "baseTimeNanoseconds": 0}
        paths.append(trace_builder.write(document, tmp_path_factory.getbasetemp() / f"rank{rank}.json"))
    try:
        summaries = [NamedSummary(path.name, summarize_trace(read_trace(path), path.name)) for path in paths]
    except TraceError:
        return
    found = RunContext(summaries).graph
    if found.graph is None:
        assert found.reason in ("different_steps", None)
        return
    check(found.graph)
    check_real_time(found.graph.recorded or found.graph)
    check_changes(found.graph, np.random.default_rng(seed), 3)


@every_real_trace
def test_real_traces(path: Path) -> None:
    graph = graph_of(path)
    check(graph)
    check_changes(graph, np.random.default_rng(1), 5)


@pytest.mark.parametrize("folder", ["gpu-dlrm-2of128", "gpu-dlrm-8of8"])
def test_real_ranks_together(folder: str) -> None:
    graph = graph_of(*sorted((REAL / folder).glob("*.json.gz")))
    check(graph)
    check_real_time(graph)
    check_changes(graph, np.random.default_rng(1), 20)
