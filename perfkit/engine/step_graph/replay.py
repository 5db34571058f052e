"""Replay a graph with its own or other durations and lags (metrics.md section 16)."""

from typing import Final

import numpy as np

from perfkit.engine.step_graph.graph import ORIGIN, StepGraph
from perfkit.trace.intervals import Ints

UNLIMITED: Final = 2**62
"""Slack (ns) of what the end does not depend on."""
_NEVER: Final = np.iinfo(np.int64).max


def replay(graph: StepGraph, duration_ns: Ints | None = None, lag_ns: Ints | None = None) -> Ints:
    """Return the end of each node, shape (n,); without a change the measured ends.

    Args:
        graph: the graph.
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


def slack(graph: StepGraph, end_ns: Ints, duration_ns: Ints | None = None, lag_ns: Ints | None = None) -> Ints:
    """Return how much longer each node alone could take without delaying the end of the last step; shape (n,).

    It is `UNLIMITED` where the end does not depend on the node: of work that ends later.

    Args:
        graph: the graph.
        end_ns: result of `replay`, or the measured ends.
        duration_ns: as given to `replay`.
        lag_ns: likewise.
    """
    durations = (graph.duration_ns if duration_ns is None else duration_ns).tolist()
    lags = (graph.edges.lag_ns if lag_ns is None else lag_ns).tolist()
    sources, targets = graph.edges.source.tolist(), graph.edges.target.tolist()
    latest = [_NEVER] * len(durations)
    latest[graph.sink] = int(end_ns[graph.sink])
    # A target's own limit is final when its edges are reached, because all edges from it go to higher numbers.
    for edge in range(len(lags) - 1, -1, -1):
        target, source = targets[edge], sources[edge]
        limit = latest[target]
        if limit < _NEVER:
            limit -= durations[target] + lags[edge]
            if limit < latest[source]:
                latest[source] = limit
    times = np.array(latest, np.int64)
    return np.where(times < _NEVER, times - end_ns, UNLIMITED)
