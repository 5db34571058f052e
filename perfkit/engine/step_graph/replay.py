"""Replay a graph with its own or other durations and lags, and find its critical path (metrics.md section 16)."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.step_graph.graph import ORIGIN, StepGraph
from perfkit.trace.intervals import Ints

UNLIMITED: Final = 2**62
"""Slack (ns) of what the end does not depend on."""
_NEVER: Final = np.iinfo(np.int64).max


def replay(graph: StepGraph, duration_ns: Ints | None = None, lag_ns: Ints | None = None) -> Ints:
    """Return the end of each node, shape (n,); without a change the measured ends.

    Args:
        duration_ns: durations of the nodes instead of the measured ones, shape (n,).
        lag_ns: lags of the edges instead of the measured ones, shape (e,).
    """
    durations = (graph.duration_ns if duration_ns is None else duration_ns).tolist()
    lags = (graph.edges.lag_ns if lag_ns is None else lag_ns).tolist()
    sources = graph.edges.source.tolist()
    first = np.searchsorted(graph.edges.target, np.arange(len(durations) + 1)).tolist()
    ends = [0] * len(durations)
    ends[ORIGIN] = int(graph.nodes.end[ORIGIN])
    edge = 0
    for node in range(1, len(durations)):
        # Every other node has at least one edge.
        begin = ends[sources[edge]] + lags[edge]
        edge += 1
        upto = first[node + 1]
        while edge < upto:
            ready = ends[sources[edge]] + lags[edge]
            if ready > begin:
                begin = ready
            edge += 1
        ends[node] = begin + durations[node]
    return np.array(ends, np.int64)


def slack(graph: StepGraph) -> Ints:
    """Return how much longer each node alone could take without delaying the end of the last step; shape (n,).

    It is `UNLIMITED` where the end does not depend on the node: of work that ends later.
    """
    durations, lags = graph.duration_ns.tolist(), graph.edges.lag_ns.tolist()
    sources, targets = graph.edges.source.tolist(), graph.edges.target.tolist()
    latest = [_NEVER] * len(durations)
    latest[graph.sink] = int(graph.nodes.end[graph.sink])
    # A target's own limit is final when its edges are reached, because all edges from it go to higher numbers.
    for edge in range(len(lags) - 1, -1, -1):
        target, source = targets[edge], sources[edge]
        limit = latest[target]
        if limit < _NEVER:
            limit -= durations[target] + lags[edge]
            if limit < latest[source]:
                latest[source] = limit
    times = np.array(latest, np.int64)
    return np.where(times < _NEVER, times - graph.nodes.end, UNLIMITED)


class CriticalPath(NamedTuple):
    """Nodes in order of time, each after a lag; together they take as long as the graph. Columns of shape (p,)."""

    node: NDArray[np.int32]
    """The first depends on the origin, the last is the sink."""
    edge: NDArray[np.int32]
    """The dependency that decided when the node began."""


def critical_path(graph: StepGraph) -> CriticalPath:
    """Return the longest path from the origin to the sink: what decided when the last step ended; of several, one."""
    end_ns = graph.nodes.end
    source, target = graph.edges.source, graph.edges.target
    tight = np.flatnonzero(end_ns[source] + graph.edges.lag_ns == graph.nodes.start[target])
    # Of several that decide, the first: edges of a target are sorted by their measured time to it.
    deciding = np.full(len(end_ns), -1, np.int64)
    deciding[target[tight[::-1]]] = tight[::-1]
    before, which = source.tolist(), deciding.tolist()
    edges = []
    node = graph.sink
    while node != ORIGIN:
        edges.append(which[node])
        node = before[which[node]]
    chosen = np.array(edges[::-1], np.int64)
    return CriticalPath(target[chosen], chosen.astype(np.int32))
