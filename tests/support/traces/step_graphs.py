"""Graphs of the steps of traces, and what is on their critical paths."""

from collections import Counter
from pathlib import Path

import numpy as np

from perfkit.engine.run_context import RunContext
from perfkit.engine.runs.rank_reports import NamedSummary
from perfkit.engine.step_graph.graph import EDGE_KINDS, StepGraph
from perfkit.engine.step_graph.replay import critical_path
from perfkit.engine.step_graph.replay import replay
from perfkit.engine.step_graph.run_graph import RunGraph
from perfkit.pipeline.load_run import load_run
from perfkit.pipeline.summarize import Options, summarize_trace
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder


def run_graph(*paths: Path) -> RunGraph:
    """Return the graph of one run's traces, or why there is none."""
    return RunContext([NamedSummary(path.name, summarize_trace(read_trace(path), path.name)) for path in paths]).graph


def graph_of_run(path: Path) -> RunGraph:
    """Return the graph of a recorded run, or why there is none."""
    loaded = load_run(path, Options(), True, None)
    return RunContext(loaded.summaries, loaded.manifest).graph


def graph_of(*paths: Path) -> StepGraph:
    """Return the graph of one run's traces."""
    found = run_graph(*paths)
    assert found.graph is not None, found.reason
    return found.graph


def graph_of_built(folder: Path, *ranks: TraceBuilder) -> StepGraph:
    """Return the graph of one run's ranks."""
    return graph_of(*(builder.write(folder / f"rank{rank}.json") for rank, builder in enumerate(ranks)))


def on_path(graph: StepGraph) -> dict[str, float]:
    """Return the microseconds on the critical path by name, and of each kind of lag (`lag: launch`)."""
    path = critical_path(graph)
    chosen = np.isin(graph.parts.node, path.node)
    found = Counter[str]()
    for name, ns in zip(graph.parts.name[chosen].tolist(), graph.parts.ns[chosen].tolist(), strict=True):
        found[graph.names[name]] += ns
    for kind, ns in zip(graph.edges.kind[path.edge].tolist(), graph.edges.lag_ns[path.edge].tolist(), strict=True):
        found[f"lag: {EDGE_KINDS[kind]}"] += ns
    return {name: ns / 1000 for name, ns in found.items() if ns}


def node_named(graph: StepGraph, name: str, rank: int = 0, place: int = 0) -> int:
    """Return a node that takes time by the name of its largest part, in order of time."""
    parts = graph.parts
    by_size = np.lexsort((-parts.ns, parts.node))
    largest = by_size[np.unique(parts.node[by_size], return_index=True)[1]]
    named = [row for row in largest.tolist() if parts.name[row] >= 0 and graph.names[parts.name[row]] == name]
    return [int(node) for node in parts.node[named].tolist() if graph.nodes.rank[node] == rank][place]


def delay(graph: StepGraph, node: int, by_us: float) -> float:
    """Return by how many microseconds the end is later if a node takes longer (or, negative, shorter)."""
    duration_ns = graph.duration_ns.copy()
    duration_ns[node] += round(by_us * 1000)
    return float(replay(graph, duration_ns)[graph.sink] - graph.nodes.end[graph.sink]) / 1000
