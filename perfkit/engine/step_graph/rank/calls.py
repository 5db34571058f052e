"""Collectives as nodes: a point at which the rank joins, and from there the transfer."""

from typing import NamedTuple

import numpy as np

from perfkit.engine.communication.collectives import Collectives
from perfkit.engine.kinds.classify import rows_by_key
from perfkit.engine.step_graph.rank.rank_graph import CollectiveNodes
from perfkit.engine.step_graph.rank.streams import Pairs, Work
from perfkit.trace.intervals import Ints


class Calls(NamedTuple):
    """Collectives of the chosen steps; columns of shape (c,)."""

    place: Ints
    """Place in `Collectives`."""
    nodes: CollectiveNodes
    work: Ints
    """Row in `Work` of the kernel; -1 without a device."""
    first_node: int
    new_nodes: int
    """Number of nodes that are no device's work: the points, and without a device the transfers."""


def find_calls(collectives: Collectives, work: Work | None, first: int, last: int, first_node: int) -> Calls:
    """Return the nodes of the collectives in the steps `[first, last)`.

    On a device, the transfer is the kernel; a collective of several kernels stays what it is, several kernels.

    Args:
        collectives: those of the trace.
        work: the device's; None without a device.
        first: the first step.
        last: the step after the last.
        first_node: number of the first new node.
    """
    order = np.empty(len(collectives.start), np.int64)
    order[np.argsort(collectives.issued, kind="stable")] = np.arange(len(order))
    chosen = np.flatnonzero((collectives.step >= first) & (collectives.step < last))
    kernel = np.full(len(chosen), -1, np.int64)
    if work is not None:
        kernel = _kernels(collectives, chosen, work)
        chosen, kernel = chosen[kernel >= 0], kernel[kernel >= 0]
    by_issue = np.argsort(order[chosen])
    chosen, kernel = chosen[by_issue], kernel[by_issue]
    joined = first_node + np.arange(len(chosen))
    transfer = joined + len(chosen) if work is None else 1 + kernel
    return Calls(
        place=chosen,
        nodes=CollectiveNodes(order[chosen], joined, transfer),
        work=kernel,
        first_node=first_node,
        new_nodes=len(chosen) * (2 if work is None else 1),
    )


def _kernels(collectives: Collectives, chosen: Ints, work: Work) -> Ints:
    """Return the row in `Work` of the one kernel of each collective, or -1."""
    rows = np.flatnonzero(np.isin(work.start, collectives.start[chosen]))
    keys = zip(work.stream[rows].tolist(), work.start[rows].tolist(), work.end[rows].tolist(), strict=True)
    known = dict(zip(keys, rows.tolist(), strict=True))
    wanted = zip(
        collectives.lane[chosen].tolist(),
        collectives.start[chosen].tolist(),
        collectives.end[chosen].tolist(),
        strict=True,
    )
    found = np.array([known.get(key, -1) for key in wanted], np.int64)
    _, first = np.unique(found, return_index=True)
    once = np.zeros(len(found), np.bool_)
    once[first] = True
    return np.where(once, found, -1)


def queue_order(collectives: Collectives, calls: Calls, end: Ints) -> Pairs:
    """Return for each collective the one of the same thread of the backend that ended last before it began.

    `end` is when each ended.
    """
    pairs = [(np.zeros(0, np.int64),) * 2]
    start = collectives.start[calls.place]
    for rows in rows_by_key(collectives.lane[calls.place], np.arange(len(calls.place))).values():
        by_end = rows[np.lexsort((start[rows], end[rows]))]
        before = np.searchsorted(end[by_end], start[by_end], side="right") - 1
        before = np.minimum(before, np.arange(len(by_end)) - 1)
        pairs.append((by_end[before[before >= 0]], by_end[before >= 0]))
    return Pairs(*(np.concatenate(column) for column in zip(*pairs, strict=True)))
