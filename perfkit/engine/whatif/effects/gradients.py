"""Changes of when and how gradients are averaged: without overlap, in other buckets, after several micro-steps."""

from dataclasses import replace
from math import ceil
from typing import Final

import numpy as np

from perfkit.base.formatting import duration, size
from perfkit.engine.step_graph.graph import (
    ARRIVAL,
    COMMUNICATION,
    COMPLETION,
    COMPUTE,
    MEMCPY,
    ORDER,
    START,
    Edges,
    StepGraph,
)
from perfkit.engine.whatif.altered import Altered, Floats, joined_edges
from perfkit.engine.whatif.awaited import Awaited, find_awaited, first_nodes, joined_points
from perfkit.engine.whatif.changes import MOST_MICRO_STEPS, Accumulate, BucketCap, RemoveOverlap
from perfkit.engine.whatif.effects.effect import Effect, Subject
from perfkit.engine.whatif.effects.transfers import latency_ns, latency_of
from perfkit.errors import UsageError
from perfkit.trace.intervals import Ints


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


_REDUCTIONS: Final = ("all_reduce", "reduce_scatter")
_SMALLEST_BUCKET: Final = 64
"""Bytes up to which a reduction is not one of gradients."""


def remove_overlap(subject: Subject, change: RemoveOverlap) -> Effect:  # noqa: ARG001  it has no options
    """Have each rank do all that it does before it waits for collectives first, and then these, one by one.

    Raises:
        UsageError: the traces do not show where ranks wait, or nothing overlaps.
    """
    graph = subject.state.graph
    awaited = find_awaited(graph)
    overlapped = awaited.before > awaited.joined
    if not overlapped.any():
        raise UsageError(f"change {subject.text}: no rank does anything between a collective and the wait for it")
    rows = Awaited(*(column[overlapped] for column in awaited))
    same = np.zeros(len(rows.wait), np.bool_)
    same[1:] = rows.wait[1:] == rows.wait[:-1]
    last = np.append(~same[1:], True)
    after_work = _edges(rows.before, rows.joined, ORDER)
    one_by_one = _edges(rows.transfer[:-1][same[1:]], rows.joined[same], ORDER)
    then_wait = _edges(rows.transfer[last], rows.wait[last], COMPLETION)
    added = joined_edges(after_work, one_by_one, then_wait)
    steps = max(1, len(graph.ranks) * len(graph.steps))
    assumptions = ["the same collectives follow one after the other, and take as long as they did beside computation"]
    return Effect(
        with_dependencies(subject.state, added),
        f"{len(rows.wait) / steps:.3g} collectives per step and rank",
        assumptions,
    )


def _edges(source: Ints, target: Ints, kind: int) -> Edges:
    lag = np.zeros(len(source), np.int64)
    return Edges(source.astype(np.int32), target.astype(np.int32), lag, np.full(len(source), kind, np.int8))


def accumulate(subject: Subject, change: Accumulate) -> Effect:
    """Repeat what each rank does from the begin of a step to its last gradients, without averaging them, or less often.

    Raises:
        UsageError: the traces do not show where the gradients are complete.
    """
    state, graph = subject.state, subject.state.graph
    length_ns = _until_gradients(state)
    if not (length_ns > 0).any():
        raise UsageError(
            f"change {subject.text}: the traces do not show where a step's gradients are complete (no collective "
            "averages them)"
        )
    known = (subject.run.config or {}).get("accumulate")
    now = known if isinstance(known, int) and 0 < known <= MOST_MICRO_STEPS else 1
    lag_ns = state.lag_ns.copy()
    edges, row, step = _first_edges(graph)
    lag_ns[edges] += (change.micro_steps - now) * length_ns[row, step] // now
    assumptions = [
        "each micro-step repeats everything from the begin of the step until its last gradients are ready to be "
        "averaged, loading included, without collectives"
    ]
    if now != known:
        assumptions.append("the run did not accumulate before")
    each = duration(round(float(length_ns[length_ns > 0].mean()) / now))
    return Effect(replace(state, lag_ns=lag_ns), f"{now} per step, of {each} each", assumptions)


def _until_gradients(state: Altered) -> Ints:
    """Return how long each rank takes from the begin of a step to its last gradients if it waits for no other rank.

    Shape (ranks, steps); 0 where no collective averages gradients.
    """
    graph, nodes = state.graph, state.graph.nodes
    free = state.scaled(nodes.kind[graph.parts.node] == COMMUNICATION, 0.0)
    ends = free.without(np.asarray(graph.edges.kind == ARRIVAL)).replay()
    joined = joined_points(graph)
    averages = np.append([name in _REDUCTIONS for name in graph.names], False)[nodes.name] & (joined >= 0)
    # Smaller ones average a loss or a norm, often after the optimizer's step.
    averages &= (nodes.bytes < 0) | (nodes.bytes > _SMALLEST_BUCKET)
    own = np.flatnonzero(averages)
    row = np.searchsorted(np.array(graph.ranks), nodes.rank[own])
    length = np.zeros((len(graph.ranks), len(graph.steps)), np.int64)
    begins = ends[graph.boundaries[row, nodes.step[own]]]
    np.maximum.at(length, (row, nodes.step[own]), ends[joined[own]] - begins)
    return length


def _first_edges(graph: StepGraph) -> tuple[Ints, Ints, Ints]:
    """Return what each rank's main thread and streams depend on by their own order when they begin a step.

    Returns:
        Places of the edges; of each, the place of its rank and that of its step.
    """
    nodes, edges = graph.nodes, graph.edges
    device = np.flatnonzero((nodes.lane >= 0) & np.isin(nodes.kind, (COMPUTE, MEMCPY)))
    step_of_lane = nodes.lane[device].astype(np.int64) * len(graph.steps) + nodes.step[device]
    streams = device[np.unique(step_of_lane, return_index=True)[1]]
    # A launch is late by itself if the host is, and what waits for another stream if that is.
    of_stream = np.isin(edges.target, streams) & np.isin(edges.kind, (ORDER, START))
    step = nodes.step.astype(np.int64)
    first = first_nodes(graph)
    rows, steps = np.nonzero(first >= 0)
    step[first[rows, steps]] = steps
    found = np.flatnonzero(of_stream | np.isin(edges.target, first[first >= 0]))
    target = edges.target[found]
    return found, np.searchsorted(np.array(graph.ranks), nodes.rank[target]), step[target]


def _reductions(graph: StepGraph) -> Awaited:
    awaited = find_awaited(graph)
    averages = np.append([name in _REDUCTIONS for name in graph.names], False)[graph.nodes.name[awaited.transfer]]
    return Awaited(*(column[averages] for column in awaited))


def change_buckets(subject: Subject, change: BucketCap) -> Effect:
    """Merge or split the buckets of gradients, in the order in which backward fills them.

    Raises:
        UsageError: the run has no buckets, or their sizes are not known.
    """
    state, graph = subject.state, subject.state.graph
    awaited = _reductions(graph)
    buckets = Awaited(*(column[_are_buckets(graph, awaited)] for column in awaited))
    if not len(buckets.wait):
        raise UsageError(f"change {subject.text}: the run has no all-reduces of gradients that overlap with backward")
    bytes_ = graph.nodes.bytes[buckets.transfer]
    if (bytes_ < 0).any():
        raise UsageError(
            f"change {subject.text}: the traces do not contain the sizes of the buckets (record with --record-shapes)"
        )
    durations = state.duration_ns.astype(np.float64)
    latency = np.minimum(latency_ns(graph, subject.run), durations)
    part_ns = state.part_ns.copy()
    before, after = len(buckets.wait), 0
    for rows in _by_wait(buckets):
        places = buckets.transfer[rows]
        further = durations[places] * _share_alone(graph.nodes.start[places], graph.nodes.end[places])
        ready = graph.nodes.end[buckets.joined[rows]]
        new = _rebucketed(bytes_[rows], durations[places], further, latency[places], ready, change)
        after += new.count
        scale = np.divide(new.ns, durations[places], out=np.zeros(len(rows)), where=durations[places] > 0)
        for node, factor in zip(places.tolist(), scale.tolist(), strict=True):
            begin, end = np.searchsorted(graph.parts.node, [node, node + 1])
            part_ns[begin:end] *= factor
    steps = max(1, len(graph.ranks) * len(graph.steps))
    whole = int(bytes_.sum() / steps)
    what = f"{before / steps:.3g} buckets per step and rank of {size(whole)} become {after / steps:.3g}"
    assumptions = [
        latency_of(subject.run),
        "the gradients of a bucket that is split become ready evenly since the bucket before it",
    ]
    return Effect(replace(state, part_ns=part_ns), what, assumptions)


def _are_buckets(graph: StepGraph, awaited: Awaited) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which reductions are all-reduces with work between them and the wait for them, or share such a wait."""
    all_reduce = np.append([name == "all_reduce" for name in graph.names], False)[graph.nodes.name[awaited.transfer]]
    overlapped = awaited.wait[all_reduce & (awaited.before > awaited.joined)]
    return np.asarray(all_reduce & np.isin(awaited.wait, overlapped))


def _by_wait(buckets: Awaited) -> list[Ints]:
    """Return the rows of each wait, in order of joining."""
    starts = np.flatnonzero(np.append(True, buckets.wait[1:] != buckets.wait[:-1]))
    return np.split(np.arange(len(buckets.wait)), starts[1:])


def _share_alone(start: Ints, end: Ints) -> Floats:
    """Return the share of each transfer after all before it have ended: transfers at once share the network."""
    before = np.maximum.accumulate(np.append(start[:1], end[:-1]))
    alone = np.maximum(end - np.maximum(start, before), 0).astype(np.float64)
    share: Floats = np.divide(alone, end - start, out=np.zeros(len(start)), where=end > start)
    return share


class _Rebucketed:
    """The transfers of one backward pass in other buckets."""

    def __init__(self, count: int) -> None:
        self.ns: Floats = np.zeros(count)
        """Time from when each old bucket was full: nothing for one that became part of a later."""
        self.count = 0


def _rebucketed(
    bytes_: Ints, ns: Floats, further_ns: Floats, latency: Floats, ready_ns: Ints, change: BucketCap
) -> _Rebucketed:
    """Return the transfers in buckets of another size; `further_ns` is what each adds to those before it."""
    new = _Rebucketed(len(ns))
    merged_bytes, merged_ns = 0, 0.0
    for place in range(len(ns)):
        above_ns = float(ns[place] - latency[place])
        if merged_bytes == 0 and bytes_[place] > change.bytes:
            pieces = ceil(int(bytes_[place]) / change.bytes)
            since = float(ready_ns[place - 1]) if place else float(ready_ns[place])
            new.ns[place] = _left(since, float(ready_ns[place]), pieces, float(latency[place]) + above_ns / pieces)
            new.count += pieces
            continue
        if merged_bytes:
            above_ns = max(0.0, float(further_ns[place] - latency[place]))
        merged_bytes, merged_ns = merged_bytes + int(bytes_[place]), merged_ns + above_ns
        if merged_bytes >= change.bytes or place == len(ns) - 1:
            new.ns[place] = merged_ns + float(latency[place])
            new.count += 1
            merged_bytes, merged_ns = 0, 0.0
    return new


def _left(since_ns: float, ready_ns: float, pieces: int, each_ns: float) -> float:
    """Return how long transfers of pieces that become ready evenly still take when the last one is."""
    # The piece that is ready last, or the queue of all if they take longer than the gradients.
    between = (ready_ns - since_ns) / pieces
    return each_ns + (pieces - 1) * max(0.0, each_ns - between)
