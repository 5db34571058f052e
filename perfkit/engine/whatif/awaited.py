"""Where each rank waits for its collectives: what had to be done before, and what came after."""

from typing import NamedTuple

import numpy as np

from perfkit.engine.step_graph.graph import (
    COMMUNICATION,
    COMPLETION,
    HOST,
    ORDER,
    ORIGIN,
    POINT,
    STREAM_WAIT,
    StepGraph,
)
from perfkit.trace.intervals import Ints


class Awaited(NamedTuple):
    """Transfers that something waits for, by rank and in order of joining; columns of shape (t,)."""

    transfer: Ints
    joined: Ints
    """The point at which the rank joins."""
    wait: Ints
    """The first node after that at which the rank waits for any transfer."""
    before: Ints
    """What the thread or stream of `wait` does last before it."""
    rank: Ints
    step: Ints


def find_awaited(graph: StepGraph) -> Awaited:
    """Return the transfers of each rank that it waits for; those whose wait is not in the graph are left out."""
    nodes = graph.nodes
    joined = joined_points(graph)
    transfers = np.flatnonzero(joined >= 0)
    waits = _waits(graph)
    before = nodes_before(graph)
    # By rank and number, so that one search finds each rank's next wait.
    size = len(nodes.start)
    own = transfers[np.lexsort((joined[transfers], nodes.rank[transfers]))]
    keys = nodes.rank[waits] * size + waits
    by = np.argsort(keys)
    place = np.searchsorted(keys[by], nodes.rank[own] * size + joined[own], side="right")
    some = place < len(waits)
    own, wait = own[some], waits[by[place[some]]]
    known = (nodes.rank[wait] == nodes.rank[own]) & (before[wait] >= 0)
    own, wait = own[known], wait[known]
    return Awaited(own, joined[own], wait, before[wait], nodes.rank[own], nodes.step[own].astype(np.int64))


def joined_points(graph: StepGraph) -> Ints:
    """Return the point at which its rank joins each transfer; -1 for what is no transfer."""
    nodes, edges = graph.nodes, graph.edges
    joins = (nodes.kind[edges.target] == COMMUNICATION) & (nodes.kind[edges.source] == POINT)
    joins &= (nodes.rank[edges.source] == nodes.rank[edges.target]) & (edges.source != ORIGIN)
    joined = np.full(len(nodes.start), -1, np.int64)
    joined[edges.target[joins]] = edges.source[joins]
    return joined


def _waits(graph: StepGraph) -> Ints:
    """Return the nodes of threads and streams that wait for a transfer, in order."""
    nodes, edges = graph.nodes, graph.edges
    waits = (nodes.kind[edges.source] == COMMUNICATION) & (nodes.kind[edges.target] != COMMUNICATION)
    waits &= np.isin(edges.kind, (COMPLETION, STREAM_WAIT))
    return np.unique(edges.target[waits]).astype(np.int64)


def nodes_before(graph: StepGraph) -> Ints:
    """Return what precedes each node on its thread or stream; -1 for nothing."""
    nodes, edges = graph.nodes, graph.edges
    same = (edges.kind == ORDER) & (nodes.lane[edges.source] == nodes.lane[edges.target])
    before = np.full(len(nodes.start), -1, np.int64)
    before[edges.target[same]] = edges.source[same]
    return before


def first_nodes(graph: StepGraph) -> Ints:
    """Return the first node of each rank's main thread in each step, shape (ranks, steps); -1 if there is none."""
    nodes = graph.nodes
    marks = _marks(graph)
    by = np.argsort(nodes.lane, kind="stable")
    bounds = np.searchsorted(nodes.lane[by], [nodes.lane[marks[:, -1]], nodes.lane[marks[:, -1]] + 1])
    found = np.full((len(graph.ranks), len(graph.steps)), -1, np.int64)
    for row, (begin, end) in enumerate(bounds.T.tolist()):
        if marks[row, -1] > ORIGIN:
            thread = by[begin:end]
            after = np.where(marks[row, :-1] > ORIGIN, marks[row, :-1], -1)
            place = np.searchsorted(thread, after, side="right")
            found[row, place < len(thread)] = thread[place[place < len(thread)]]
    return found


def _marks(graph: StepGraph) -> Ints:
    """Return the node of the main thread that ends where each step begins, shape of `boundaries`; -1 for none."""
    nodes, edges = graph.nodes, graph.edges
    ending = nodes.kind[edges.source] == HOST
    mark = np.full(len(nodes.start), -1, np.int64)
    mark[edges.target[ending]] = edges.source[ending]
    return np.asarray(mark[graph.boundaries])
