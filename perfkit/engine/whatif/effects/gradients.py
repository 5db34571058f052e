"""Changes of when and how gradients are averaged: without overlap, in other buckets, after several micro-steps."""

from collections import defaultdict
from dataclasses import replace
from math import ceil
from typing import ClassVar, Final, Self

import numpy as np

from perfkit.engine.losses.dimensions import micro_batches, reduced_each, updates_of
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
from perfkit.engine.whatif.altered import Altered, Floats, Mask, joined_edges
from perfkit.engine.whatif.awaited import Awaited, find_awaited, first_nodes, joined_points
from perfkit.engine.whatif.change import Change, ChangedRun, ChangeError, Effect
from perfkit.engine.whatif.effects.transfers import latency_ns, latency_of
from perfkit.engine.whatif.parts import per_rank_and_step, time_per_step
from perfkit.engine.whatif.values import Removal, read_size, read_whole
from perfkit.records.facts import fact
from perfkit.records.run import RunReport
from perfkit.trace.intervals import Ints


def with_dependencies(state: Altered, added: Edges) -> Altered:
    """Return `state` with further dependencies, between any nodes.

    Raises:
        ChangeError: a node would depend on itself.
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
        raise ChangeError(fact("waits_for_itself"))
    return np.array(order, np.int64)


_MOST_MICRO_STEPS: Final = 4096
_REDUCTIONS: Final = ("all_reduce", "reduce_scatter")
_SMALLEST_BUCKET: Final = 64
"""Bytes up to which a reduction is not one of gradients."""


class RemoveOverlap(Removal, frozen=True):
    """Each rank does all that it does before it waits for collectives first, and then these, one by one."""

    example: ClassVar = "overlap=removed"
    help: ClassVar = "communication after backward instead of during it"
    subject: ClassVar = "overlap()"

    def apply(self, run: ChangedRun) -> Effect:
        """Let collectives follow the last work before the wait for them."""
        awaited = find_awaited(run.graph)
        overlapped = awaited.before > awaited.joined
        if not overlapped.any():
            raise ChangeError(fact("nothing_overlaps"))
        rows = Awaited(*(column[overlapped] for column in awaited))
        same = np.zeros(len(rows.wait), np.bool_)
        same[1:] = rows.wait[1:] == rows.wait[:-1]
        last = np.append(~same[1:], True)
        after_work = _edges(rows.before, rows.joined, ORDER)
        one_by_one = _edges(rows.transfer[:-1][same[1:]], rows.joined[same], ORDER)
        then_wait = _edges(rows.transfer[last], rows.wait[last], COMPLETION)
        state = with_dependencies(run.state, joined_edges(after_work, one_by_one, then_wait))
        what = (fact("collectives", count=len(rows.wait) / per_rank_and_step(run.graph)),)
        return Effect(state, what, [fact("one_by_one")])


def _edges(source: Ints, target: Ints, kind: int) -> Edges:
    lag = np.zeros(len(source), np.int64)
    return Edges(source.astype(np.int32), target.astype(np.int32), lag, np.full(len(source), kind, np.int8))


class Accumulate(Change, frozen=True):
    """Each rank repeats a step up to its last gradients, `micro_steps` times in all, and averages them once."""

    example: ClassVar = "accumulate=4"
    help: ClassVar = "micro-steps per step"
    subject: ClassVar = "accumulate()"
    is_single: ClassVar = True

    micro_steps: int

    @classmethod
    def read(cls, name: str, value: str) -> Self:  # noqa: ARG003
        """Return the change."""
        return cls(read_whole(value, "micro_steps", _MOST_MICRO_STEPS))

    def apply(self, run: ChangedRun) -> Effect:
        """Let each rank's thread and streams begin a step by the further micro-steps later."""
        length_ns = _until_gradients(run.state)
        if not (length_ns > 0).any():
            raise ChangeError(fact("no_gradients"))
        known = (run.report.config or {}).get("accumulate")
        now = known if isinstance(known, int) and 0 < known <= _MOST_MICRO_STEPS else 1
        lag_ns = run.state.lag_ns.copy()
        edges, row, step = _first_edges(run.graph)
        lag_ns[edges] += (self.micro_steps - now) * length_ns[row, step] // now
        assumptions = [fact("repeats_all"), *([fact("did_not_accumulate")] if now != known else [])]
        what = (fact("micro_steps_of", count=now, ns=round(float(length_ns[length_ns > 0].mean()) / now)),)
        return Effect(replace(run.state, lag_ns=lag_ns), what, assumptions)


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


class NoSync(Removal, frozen=True):
    """DDP reduces the gradients of the last micro-batch of each update alone: the other reductions take no time."""

    example: ClassVar = "no_sync"
    help: ClassVar = "DDP reduces gradients once per update"
    subject: ClassVar = "no_sync()"
    word: ClassVar = ""
    tried: ClassVar = ("no_sync",)
    is_single: ClassVar = True

    def apply(self, run: ChangedRun) -> Effect:
        """Leave out the transfers of all but the last micro-batch, and what ranks wait for each other there."""
        batches = micro_batches(run.report)
        early = _early_reductions(run.graph, run.report, batches)
        if not early.any():
            raise ChangeError(fact("reduced_once"))
        parts = np.asarray(early[run.graph.parts.node])
        what = (
            fact("reductions", count=int(early.sum()) / per_rank_and_step(run.graph)),
            *time_per_step(run.state, parts),
        )
        arrivals = early[run.graph.edges.target] & (run.graph.edges.kind == ARRIVAL)
        state = run.state.scaled(parts, 0.0).without(np.asarray(arrivals))
        return Effect(state, what, [fact("last_reduces", count=batches), fact("hooks_stay")])


def _early_reductions(graph: StepGraph, run: RunReport, batches: int) -> Mask:
    """Return DDP's reductions of all but the last micro-batch of each update: of those of a size, the first ones.

    None are if the run is not known to reduce each bucket in each micro-batch.
    """
    nodes, joined = graph.nodes, joined_points(graph)
    early = np.zeros(len(nodes.start), np.bool_)
    if batches < 2 or not reduced_each(run, batches):
        return early
    of_update = _reductions_per_update(run)
    named = np.append([name == "all_reduce" for name in graph.names], False)[nodes.name]
    own = np.flatnonzero(named & (joined >= 0))
    own = own[np.lexsort((joined[own], nodes.bytes[own], nodes.dimension[own], nodes.rank[own]))]
    keys = np.stack((nodes.rank[own], nodes.dimension[own], nodes.bytes[own]))
    first = np.flatnonzero(np.append(True, (keys[:, 1:] != keys[:, :-1]).any(axis=0)))
    for rows in np.split(own, first[1:]) if len(own) else ():
        rank, dimension, size = (int(column[rows[0]]) for column in (nodes.rank, nodes.dimension, nodes.bytes))
        count = of_update.get((rank, graph.dimensions[dimension] if dimension >= 0 else None, size), 0)
        if count:
            early[rows] = np.arange(len(rows)) % count < count - count // batches
    return early


def _reductions_per_update(run: RunReport) -> dict[tuple[int | None, str | None, int], int]:
    """Return how many buckets of a size DDP reduces per update, by rank, dimension and size (-1: unknown)."""
    counts: dict[tuple[int | None, str | None, int], int] = defaultdict(int)
    for rank in run.ranks:
        for row in rank.collectives:
            if row.ddp_bucket:
                counts[rank.rank, row.dimension, -1 if row.bytes is None else row.bytes] += row.count
    updates = {rank.rank: updates_of(rank) for rank in run.ranks}
    return {key: count // updates[key[0]] for key, count in counts.items()}


class BucketCap(Change, frozen=True):
    """DDP's buckets are split or merged to `bytes`, in the order in which backward fills them."""

    example: ClassVar = "bucket_cap=50MB"
    help: ClassVar = "DDP's buckets"
    subject: ClassVar = "bucket_cap()"
    is_single: ClassVar = True

    bytes: int

    @classmethod
    def read(cls, name: str, value: str) -> Self:  # noqa: ARG003
        """Return the change."""
        return cls(read_size(value))

    def apply(self, run: ChangedRun) -> Effect:
        """Give the transfers of each backward pass the times that they have in other buckets."""
        state, graph = run.state, run.graph
        buckets = _buckets(graph)
        bytes_ = graph.nodes.bytes[buckets.transfer]
        durations = state.duration_ns.astype(np.float64)
        latency = np.minimum(latency_ns(graph, run.report), durations)
        part_ns = state.part_ns.copy()
        before, after = len(buckets.wait), 0
        for rows in _by_wait(buckets):
            places = buckets.transfer[rows]
            further = durations[places] * _share_alone(graph.nodes.start[places], graph.nodes.end[places])
            ready = graph.nodes.end[buckets.joined[rows]]
            new = _rebucketed(bytes_[rows], durations[places], further, latency[places], ready, self.bytes)
            after += new.count
            scale = np.divide(new.ns, durations[places], out=np.zeros(len(rows)), where=durations[places] > 0)
            for node, factor in zip(places.tolist(), scale.tolist(), strict=True):
                begin, end = np.searchsorted(graph.parts.node, [node, node + 1])
                part_ns[begin:end] *= factor
        steps = per_rank_and_step(graph)
        size = int(bytes_.sum() / steps)
        what = (fact("buckets_become", before=before / steps, size=size, after=after / steps),)
        assumptions = [latency_of(run.report), fact("evenly_ready")]
        return Effect(replace(state, part_ns=part_ns), what, assumptions)


def _buckets(graph: StepGraph) -> Awaited:
    """Return the buckets of gradients, of known size.

    Raises:
        ChangeError: there are none, or their sizes are unknown.
    """
    awaited = find_awaited(graph)
    buckets = Awaited(*(column[_are_buckets(graph, awaited)] for column in awaited))
    if not len(buckets.wait):
        raise ChangeError(fact("no_buckets"))
    if (graph.nodes.bytes[buckets.transfer] < 0).any():
        raise ChangeError(fact("sizes_unknown"))
    return buckets


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
    bytes_: Ints, ns: Floats, further_ns: Floats, latency: Floats, ready_ns: Ints, most_bytes: int
) -> _Rebucketed:
    """Return the transfers in buckets of another size; `further_ns` is what each adds to those before it."""
    new = _Rebucketed(len(ns))
    merged_bytes, merged_ns = 0, 0.0
    for place in range(len(ns)):
        above_ns = float(ns[place] - latency[place])
        if merged_bytes == 0 and bytes_[place] > most_bytes:
            pieces = ceil(int(bytes_[place]) / most_bytes)
            since = float(ready_ns[place - 1]) if place else float(ready_ns[place])
            new.ns[place] = _left(since, float(ready_ns[place]), pieces, float(latency[place]) + above_ns / pieces)
            new.count += pieces
            continue
        if merged_bytes:
            above_ns = max(0.0, float(further_ns[place] - latency[place]))
        merged_bytes, merged_ns = merged_bytes + int(bytes_[place]), merged_ns + above_ns
        if merged_bytes >= most_bytes or place == len(ns) - 1:
            new.ns[place] = merged_ns + float(latency[place])
            new.count += 1
            merged_bytes, merged_ns = 0, 0.0
    return new


def _left(since_ns: float, ready_ns: float, pieces: int, each_ns: float) -> float:
    """Return how long transfers of pieces that become ready evenly still take when the last one is."""
    # The piece that is ready last, or the queue of all if they take longer than the gradients.
    between = (ready_ns - since_ns) / pieces
    return each_ns + (pieces - 1) * max(0.0, each_ns - between)
