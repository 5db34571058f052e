"""Streams of a device as lanes: what ran on them, and what each kernel waited for besides its launch."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.communication.collectives import Collectives
from perfkit.engine.kinds.classify import Device, rows_by_key
from perfkit.engine.kinds.runtime_calls import call_patterns
from perfkit.engine.step_graph.rank.rank_graph import CollectiveNodes
from perfkit.engine.steps.windows import Steps
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import EMPTY, Ints, concatenated

_MOST_STREAMS: Final = 64
"""Streams that others may wait for, those with the most work: programs have a few, damage may have thousands."""


class Work(NamedTuple):
    """Kernels and copies of some steps, by end and start; columns of shape (d,)."""

    place: Ints
    """Place in `Device`."""
    start: Ints
    """Begin, but not before the steps', nor (`in_turn`) before the work of its stream that it overlaps has ended."""
    end: Ints
    stream: Ints
    """Index as in `Events.thread`."""
    launch_row: Ints
    """Row of the launch; -1 if it was not recorded, or belongs to an earlier step."""


class Pairs(NamedTuple):
    """Dependencies between rows of a `Work`; columns of shape (e,)."""

    source: Ints
    target: Ints


def select_work(events: Events, device: Device, steps: Steps, first: int, last: int, begin_ns: int) -> Work:
    """Return what was launched in the steps `[first, last)`, and earlier work that still ran when they began."""
    end = events.end_ns[device.row]
    chosen = (steps.device_step >= first) & (steps.device_step < last)
    earlier = (steps.device_step < first) & (steps.device_step > -2) & (end > begin_ns)
    places = np.flatnonzero(chosen | earlier)
    start = np.maximum(events.start_ns[device.row[places]], begin_ns)
    places, start = places[end[places] >= start], start[end[places] >= start]
    order = np.lexsort((start, end[places]))
    places, start = places[order], start[order]
    return Work(
        place=places,
        start=start,
        end=end[places],
        stream=events.thread[device.row[places]].astype(np.int64),
        launch_row=np.where(chosen[places], device.launch_row[places], -1),
    )


def in_turn(work: Work) -> Work:
    """Return work that begins when what began before it on its stream has ended, if that ended no later than itself.

    On a stream, work may begin while the one before ends (programmatic dependent launch), or its times be inexact.
    """
    start = work.start.copy()
    for rows in rows_by_key(work.stream).values():
        own = rows[np.lexsort((work.end[rows], start[rows]))]
        ended, following = np.maximum.accumulate(work.end[own])[:-1], own[1:]
        overlaps = (ended > start[following]) & (ended <= work.end[following])
        start[following[overlaps]] = ended[overlaps]
    return work._replace(start=start)


def last_before(lane: Ints, start: Ints, end: Ints) -> Pairs:
    """Return for each activity what ended last on its stream or thread before it began."""
    pairs = [Pairs(EMPTY.start, EMPTY.start)]
    for own in rows_by_key(lane).values():
        # In order of end: the one before an activity in that order is the last that can have ended before it.
        rows = own[np.lexsort((start[own], end[own]))]
        before = np.searchsorted(end[rows], start[rows], side="right") - 1
        before = np.minimum(before, np.arange(len(rows)) - 1)
        pairs.append(Pairs(rows[before[before >= 0]], rows[before >= 0]))
    return concatenated(pairs)


def stream_waits(events: Events, work: Work, order: Pairs) -> Pairs:
    """Return what activities on other streams each activity waited for.

    A call that makes a stream wait does not name the streams in a trace. But what waits is launched after it, as the
    first on its stream, and what is waited for before it. Of all that was launched before the call to other streams and
    ended before an activity began, the last may be what that waited for. It is if the activity began later than its
    launch and its own stream let it, and it is supposed to be if no other launch followed the call: by any thread,
    because one may wait and another launch. `order` is what came before each on its stream.
    """
    launched = np.flatnonzero(work.launch_row >= 0)
    if not len(launched):
        return Pairs(launched, launched)
    at = events.start_ns[work.launch_row[launched]]
    by_launch = np.argsort(at, kind="stable")
    launched, at = launched[by_launch], at[by_launch]
    told = _told_to_wait(events, work.stream[launched], at)
    start, free_ns = work.start[launched], np.maximum(free_by_stream(work, order)[launched], at)
    best = np.full(len(launched), -1, np.int64)
    best_end = np.where(told.is_next, np.iinfo(np.int64).min, free_ns)
    by_stream = rows_by_key(work.stream[launched], np.arange(len(launched)))
    for stream in sorted(by_stream, key=lambda stream: -len(by_stream[stream]))[:_MOST_STREAMS]:
        rows = by_stream[stream]
        ended = np.searchsorted(np.sort(work.end[launched[rows]]), start, "right")
        before = np.minimum(ended, np.searchsorted(at[rows], told.called_ns))
        candidate = launched[rows[np.maximum(before - 1, 0)]]
        end = work.end[candidate]
        fits = told.may_wait & (before > 0) & (work.stream[launched] != stream) & (end <= start) & (end > best_end)
        best, best_end = np.where(fits, candidate, best), np.where(fits, end, best_end)
    return Pairs(best[best >= 0], launched[best >= 0])


def free_by_stream(work: Work, order: Pairs) -> Ints:
    """Return when what ran before each activity on its stream had ended; the least number where nothing did."""
    free_ns = np.full(len(work.start), np.iinfo(np.int64).min)
    free_ns[order.target] = work.end[order.source]
    return free_ns


class _Told(NamedTuple):
    """Calls that make a stream wait, of each launch; columns of shape (l,)."""

    called_ns: Ints
    """When the last one before the launch began."""
    may_wait: NDArray[np.bool_]
    """Whether it is later than the launch before on the same stream."""
    is_next: NDArray[np.bool_]
    """Whether it is later than the launch before on any stream."""


def _told_to_wait(events: Events, stream: Ints, at: Ints) -> _Told:
    """Return the calls before each launch; the launches are sorted by their begin `at`.

    A trace without any such call has lost them, or has one stream: there, each activity may wait for what was launched
    before.
    """
    calls = events.rows(EventKind.LAUNCH)
    calls = calls[events.shapes.starting_with(call_patterns().stream_wait)[events.name[calls]]]
    if not len(calls):
        return _Told(at, np.ones(len(at), np.bool_), np.zeros(len(at), np.bool_))
    least = np.iinfo(np.int64).min
    times = np.append(least, np.sort(events.start_ns[calls]))
    called_ns = times[np.searchsorted(times, at) - 1]
    before = np.full(len(at), least)
    for rows in rows_by_key(stream, np.arange(len(at))).values():
        before[rows[1:]] = at[rows[:-1]]
    return _Told(called_ns, called_ns > before, called_ns > np.append(least, at[:-1]))


# ---- collectives: a point at which the rank joins, and from there the transfer ---------------------------------------


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
