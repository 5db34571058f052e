"""Streams of a device as lanes: what ran on them, and what each kernel waited for besides its launch."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.kinds.classify import Device, rows_by_key
from perfkit.engine.kinds.runtime_calls import call_patterns
from perfkit.engine.steps.windows import Steps
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints

_MOST_STREAMS: Final = 64
"""Streams that others may wait for, those with the most work: programs have a few, damage may have thousands."""


class Work(NamedTuple):
    """Kernels and copies of some steps, by end and start; columns of shape (d,)."""

    place: Ints
    """Place in `Device`."""
    start: Ints
    """Begin, but not before the steps'."""
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


def stream_order(work: Work) -> Pairs:
    """Return for each activity what ended last on its stream before it began."""
    pairs = []
    for rows in rows_by_key(work.stream, np.arange(len(work.start))).values():
        # In order of end: the one before an activity in that order is the last that can have ended before it.
        before = np.searchsorted(work.end[rows], work.start[rows], side="right") - 1
        before = np.minimum(before, np.arange(len(rows)) - 1)
        pairs.append((rows[before[before >= 0]], rows[before >= 0]))
    return _joined(pairs)


def last_ended(work: Work, of: NDArray[np.bool_]) -> Pairs:
    """Return for some activities what ended last on any stream before they began."""
    target = np.flatnonzero(of)
    # In order of end: the one before an activity in that order is the last that can have ended before it.
    before = np.minimum(np.searchsorted(work.end, work.start[target], side="right"), target) - 1
    return Pairs(before[before >= 0], target[before >= 0])


def stream_waits(events: Events, work: Work) -> Pairs:
    """Return what activities on other streams each activity waited for.

    A call that makes a stream wait does not name the streams in a trace. It belongs to the next launch of its thread.
    What that waits for is what had been launched to another stream by then; of several streams, what ended last before
    the activity began. A trace without any such call has lost them, or has one stream: there, every activity waits for
    what ended after all before it on its own stream.
    """
    launched = np.flatnonzero(work.launch_row >= 0)
    if not len(launched):
        return Pairs(launched, launched)
    by_launch = launched[np.argsort(events.start_ns[work.launch_row[launched]], kind="stable")]
    launch_ns = events.start_ns[work.launch_row[by_launch]]
    follows = _follows_wait(events, work, by_launch)
    waiting = by_launch if follows is None else by_launch[follows]
    at_ns = events.start_ns[work.launch_row[waiting]]
    best, best_end = np.full(len(waiting), -1, np.int64), _free_ns(work)[waiting]
    if follows is not None:
        best_end[:] = np.iinfo(np.int64).min
    by_stream = rows_by_key(work.stream[by_launch], np.arange(len(by_launch)))
    for stream in sorted(by_stream, key=lambda stream: -len(by_stream[stream]))[:_MOST_STREAMS]:
        places = by_stream[stream]
        before = np.searchsorted(launch_ns[places], at_ns) - 1
        candidate = np.where(before >= 0, by_launch[places[np.maximum(before, 0)]], -1)
        end = work.end[candidate]
        fits = (candidate >= 0) & (work.stream[waiting] != stream) & (end <= work.start[waiting]) & (end > best_end)
        best, best_end = np.where(fits, candidate, best), np.where(fits, end, best_end)
    return Pairs(best[best >= 0], waiting[best >= 0])


def _free_ns(work: Work) -> Ints:
    """Return when what ran before each activity on its stream had ended; the least number where nothing did."""
    before = stream_order(work)
    free_ns = np.full(len(work.start), np.iinfo(np.int64).min)
    free_ns[before.target] = work.end[before.source]
    return free_ns


def _follows_wait(events: Events, work: Work, by_launch: Ints) -> NDArray[np.bool_] | None:
    """Return which activities, in order of launch, were launched after a wait and no other launch of the thread.

    None if the trace has no such waits.
    """
    calls = events.rows(EventKind.LAUNCH)
    calls = calls[events.shapes.starting_with(call_patterns().stream_wait)[events.name[calls]]]
    if not len(calls):
        return None
    rows = work.launch_row[by_launch]
    follows = np.zeros(len(by_launch), np.bool_)
    of_thread = rows_by_key(events.thread[rows], np.arange(len(rows)))
    for thread, here in rows_by_key(events.thread, calls).items():
        places = of_thread.get(thread)
        if places is not None:
            at = np.searchsorted(events.start_ns[rows[places]], events.start_ns[here])
            follows[places[at[at < len(places)]]] = True
    return follows


def _joined(pairs: list[tuple[Ints, Ints]]) -> Pairs:
    none = np.zeros(0, np.int64)
    return Pairs(np.concatenate([none, *(a for a, _ in pairs)]), np.concatenate([none, *(b for _, b in pairs)]))
