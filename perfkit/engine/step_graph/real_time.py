"""The graph of recorded steps in the time of real ones: without the profiler's cost, as long as the mean step.

Recorded steps take longer because of what is known to be the profiler's own work, and because it spends about as long
on each event of the host, whatever that is. So the difference is taken off the former and then off the parts of host
threads: from each the same, but no more than the part takes. Where these do not suffice, all times are scaled. Where
recorded steps are the shorter ones, they do not tell why others take longer.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from perfkit.engine.step_graph.graph import HOST, KINDS, ORIGIN, Nodes, Parts, StepGraph
from perfkit.engine.step_graph.replay import critical_path, replay
from perfkit.trace.intervals import Ints

_PROFILER: Final = KINDS.index("profiler")
_ROUNDING: Final = 0.01
"""Share of the step up to which a difference is between two ways to measure steps: ends on all ranks, or durations."""


def all_in_real_time(graphs: Sequence[StepGraph], step_ns: float) -> list[StepGraph]:
    """Return graphs whose mean step takes `step_ns`, each in proportion to its own; see `in_real_time`."""
    mean_ns = sum(map(whole_ns, graphs)) / sum(len(graph.steps) for graph in graphs)
    return [in_real_time(graph, mean_step_ns(graph) * step_ns / mean_ns) for graph in graphs]


def in_real_time(graph: StepGraph, step_ns: float) -> StepGraph:
    """Return a graph whose mean step takes `step_ns`, as the run's steps do; the same where its own are no longer."""
    added_ns = mean_step_ns(graph) - step_ns
    if added_ns <= 0:
        return graph
    real = _without_profiler(graph, added_ns) if added_ns > _ROUNDING * step_ns else graph
    if not mean_step_ns(real):  # all of it was host work on the path: no length is left that could be scaled
        real = graph
    return replace(_scaled(real, step_ns / mean_step_ns(real)), recorded=graph)


def mean_step_ns(graph: StepGraph) -> float:
    """Return the mean time from when all ranks have begun a step to when all have begun the next."""
    return whole_ns(graph) / len(graph.steps)


def whole_ns(graph: StepGraph) -> int:
    """Return the time of all steps."""
    ends = graph.step_ends(graph.nodes.end)
    return int(ends[-1] - ends[0])


def _without_profiler(graph: StepGraph, added_ns: float) -> StepGraph:
    """Return the graph without what the profiler adds to each step."""
    of_host = graph.nodes.kind[graph.parts.node] == HOST
    on_path = np.zeros(len(graph.nodes.start), np.bool_)
    on_path[critical_path(graph).node] = True
    part_ns, left_ns = graph.parts.ns, added_ns * len(graph.steps)
    for taken in (of_host & (graph.parts.kind == _PROFILER), of_host):
        counts = taken & on_path[graph.parts.node]
        each_ns = _each(part_ns[counts], left_ns)
        left_ns -= float(np.minimum(part_ns[counts], each_ns).sum())
        part_ns = np.where(taken, part_ns - np.minimum(part_ns, each_ns), part_ns)
    taken_ns = np.bincount(graph.parts.node, weights=graph.parts.ns - part_ns, minlength=len(graph.nodes.start))
    duration_ns = graph.duration_ns - np.rint(taken_ns).astype(np.int64)
    end = replay(graph, duration_ns)
    nodes = graph.nodes._replace(start=end - duration_ns, end=end)
    return replace(graph, nodes=nodes, parts=graph.parts._replace(ns=part_ns))


def _each(part_ns: Ints, total_ns: float) -> int:
    """Return how much has to be taken off each part, at most all of it, to take `total_ns` off all of them."""
    ordered = np.sort(part_ns)
    # Parts up to the k-th are gone, and the others each lose as much as the k-th takes.
    taken_ns = np.cumsum(ordered) + ordered * np.arange(len(ordered) - 1, -1, -1)
    gone = int(np.searchsorted(taken_ns, total_ns))
    if gone == len(ordered):
        return int(ordered[-1]) if gone else 0
    return int((total_ns - ordered[:gone].sum()) / (len(ordered) - gone))


def _scaled(graph: StepGraph, factor: float) -> StepGraph:
    """Return the graph with all times multiplied by a factor; it replays to these times."""
    zero = int(graph.nodes.start[ORIGIN])

    def at(time_ns: Ints) -> Ints:
        scaled: Ints = zero + np.rint((time_ns - zero) * factor).astype(np.int64)
        return scaled

    nodes = graph.nodes._replace(start=at(graph.nodes.start), end=at(graph.nodes.end))
    edges = graph.edges
    decides = graph.nodes.end[edges.source] + edges.lag_ns == graph.nodes.start[edges.target]
    # What decides when a node begins still does; other dependencies do not become longer than there is room for.
    room = nodes.start[edges.target] - nodes.end[edges.source]
    lag = np.where(decides, room, np.minimum(np.floor(edges.lag_ns * factor).astype(np.int64), room))
    return replace(graph, nodes=nodes, edges=edges._replace(lag_ns=lag), parts=filled(graph.parts, nodes))


def filled(parts: Parts, nodes: Nodes) -> Parts:
    """Return parts that fill their nodes, each in proportion to what it was; they are sorted by node."""
    last = np.flatnonzero(np.diff(parts.node, append=-1))
    sums = np.cumsum(parts.ns)
    before = np.concatenate((np.zeros(1, np.int64), sums[last][:-1]))
    whole = np.zeros(len(nodes.start), np.int64)
    whole[parts.node[last]] = sums[last] - before
    offset = np.zeros(len(nodes.start), np.int64)
    offset[parts.node[last]] = before
    duration = (nodes.end - nodes.start)[parts.node]
    share = (sums - offset[parts.node]) / np.maximum(whole[parts.node], 1)
    upto = np.rint(duration * share).astype(np.int64)
    first = np.ones(len(upto), np.bool_)
    first[1:] = parts.node[1:] != parts.node[:-1]
    return parts._replace(ns=np.where(first, upto, np.diff(upto, prepend=0)))
