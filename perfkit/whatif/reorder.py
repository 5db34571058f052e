"""Add dependencies that the measured order of nodes contradicts: number the nodes anew."""

from dataclasses import replace

import numpy as np

from perfkit.analysis.step_graph.graph import Edges
from perfkit.errors import UsageError
from perfkit.trace.intervals import Ints
from perfkit.whatif.altered import Altered, joined_edges


def with_dependencies(state: Altered, added: Edges) -> Altered:
    """Return `state` with further dependencies, between any nodes.

    Raises:
        UsageError: a node would depend on itself.
    """
    graph = state.graph
    source, target, lag_ns, kind = joined_edges(graph.edges._replace(lag_ns=state.lag_ns), added)
    order = _topological(source.astype(np.int64), target.astype(np.int64), len(graph.nodes.start))
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    source, target = place[source], place[target]
    by = np.argsort(target, kind="stable")
    edges = Edges(source[by], target[by], lag_ns[by], kind[by])
    parts = graph.parts._replace(node=place[graph.parts.node])
    by_node = np.argsort(parts.node, kind="stable")
    renumbered = replace(
        graph,
        nodes=graph.nodes.where(order),
        edges=edges,
        parts=parts.where(by_node),
        boundaries=place[graph.boundaries].astype(np.int64),
        sink=int(place[graph.sink]),
    )
    return Altered(renumbered, state.part_ns[by_node], edges.lag_ns)


def _topological(source: Ints, target: Ints, count: int) -> Ints:
    """Return the nodes in an order in which each comes after those that it depends on (Kahn 1962)."""
    by = np.argsort(source, kind="stable")
    first = np.searchsorted(source[by], np.arange(count + 1)).tolist()
    after = target[by].tolist()
    waiting = np.bincount(target, minlength=count).tolist()
    ready = [node for node in range(count - 1, -1, -1) if waiting[node] == 0]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for following in after[first[node] : first[node + 1]]:
            waiting[following] -= 1
            if waiting[following] == 0:
                ready.append(following)
    if len(order) < count:
        raise UsageError("these changes contradict the order of the steps: a part would have to wait for itself")
    return np.array(order, np.int64)
