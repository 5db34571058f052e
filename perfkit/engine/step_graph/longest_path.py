"""The critical path: the chain of nodes and lags that decided when the last step ended (metrics.md section 16)."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.step_graph.graph import ORIGIN, StepGraph
from perfkit.trace.intervals import Ints


class CriticalPath(NamedTuple):
    """Nodes in order of time, each after a lag; together they take as long as the graph. Columns of shape (p,)."""

    node: NDArray[np.int32]
    """The first depends on the origin, the last is the sink."""
    edge: NDArray[np.int32]
    """The dependency that decided when the node began."""


def critical_path(
    graph: StepGraph, end_ns: Ints | None = None, duration_ns: Ints | None = None, lag_ns: Ints | None = None
) -> CriticalPath:
    """Return the longest path from the origin to the sink; of several, one.

    Args:
        graph: the graph.
        end_ns: result of `replay`; the measured ends without it.
        duration_ns: as given to `replay`.
        lag_ns: likewise.
    """
    end_ns = graph.nodes.end if end_ns is None else end_ns
    duration_ns = graph.duration_ns if duration_ns is None else duration_ns
    lag_ns = graph.edges.lag_ns if lag_ns is None else lag_ns
    source, target = graph.edges.source, graph.edges.target
    tight = np.flatnonzero(end_ns[source] + lag_ns == (end_ns - duration_ns)[target])
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
