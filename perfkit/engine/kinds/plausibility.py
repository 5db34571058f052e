"""Check device work against its launches and the order of its streams, and bound what cannot be true (section 2).

Work of a stream starts and ends in the order in which it was launched, and none starts before its launch. What
contradicts this is damage of the recording: the least is changed that makes the rest consistent.
"""

import re
from bisect import bisect_right
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.kinds.runtime_calls import call_patterns
from perfkit.records.aggregate import REPORTED_SHARE
from perfkit.records.common import Observation, Severity
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import EMPTY, Ints, Union, covers, union
from perfkit.trace.timestamps import LIMIT_NS

_LONGEST_LATENCY_NS: Final = 1_000_000
"""From a launch to the start on an idle device: 2 to 45 us in 14 recorded traces of NVIDIA's and AMD's devices."""
_SOONEST_OF_MANY_NS: Final = 40_000
"""The same for the soonest of `_MANY` in succession: 13 us at most in 16 traces that have as many."""
_MANY: Final = 10
_NEVER: Final = np.iinfo(np.int64).max // 2
_BEGINS_CAPTURE: Final = re.compile("StreamBeginCapture")
_ENDS_CAPTURE: Final = re.compile("StreamEndCapture")


class Work(NamedTuple):
    """Device activities of a trace, as far as they are possible; columns of shape (d,)."""

    events: Events
    """With the bounded times; the same object if all are possible."""
    row: Ints
    """Row in `events`, in their order."""
    launch_row: Ints
    """Row of the earliest launch with the same correlation; -1 if none was recorded."""
    lost_ns: Ints
    """When kernels were launched that are not in the trace, ascending."""
    launches: int
    """Launches of kernels, with and without one."""
    findings: list[Observation]


def check_work(events: Events, recorded_until_ns: int | None = None) -> Work:
    """Join device activities to their launches, and bound or leave out what cannot be true.

    Args:
        events: the trace.
        recorded_until_ns: when the profiler stopped; None if unknown.
    """
    row = events.rows(EventKind.KERNEL, EventKind.COPY)
    calls = events.rows(EventKind.LAUNCH)
    launch_row = _join_launches(events, row, calls)
    lost_ns, launches = _lost(events, row, launch_row, calls)
    if _launched_at_once(events, launch_row):
        launch_row = np.full_like(launch_row, -1)
    if not len(row):
        return Work(events, row, launch_row, lost_ns, launches, [])
    repeated = _repeated(events, row, launch_row)
    until_ns, impossible, unordered = _in_order(events, row, launch_row, np.flatnonzero(~repeated))
    until_ns[repeated], impossible[repeated] = events.start_ns[row[repeated]], True
    known = (launch_row >= 0) & (until_ns > events.start_ns[row])
    lag_ns = events.start_ns[row[known]] - events.start_ns[launch_row[known]]
    idle_lag_ns = _lags_on_idle(events, row, launch_row, until_ns, lost_ns)
    waited_ns = _done_by(events, row, launch_row, calls)
    is_late = bool(np.count_nonzero(until_ns > waited_ns) * 2 > len(row))
    shift_ns, drift_ns = _clock_shift(lag_ns, idle_lag_ns, is_late=is_late), _clock_drift(idle_lag_ns)
    early = np.zeros(len(row), np.bool_)
    early[known] = lag_ns + shift_ns < 0
    if np.count_nonzero(early) * 2 < len(row):
        until_ns[early] = events.start_ns[row[early]]
    recorded_ns = recorded_until_ns if recorded_until_ns is not None else _NEVER
    if np.count_nonzero(events.start_ns[row] > recorded_ns) * 2 > len(row):
        recorded_ns = _NEVER  # the mark is wrong, not most of the work
    done_ns = np.minimum(waited_ns, recorded_ns) - shift_ns
    impossible |= early | (until_ns > done_ns)
    until_ns = np.minimum(until_ns, done_ns)
    if not shift_ns and not drift_ns and not (impossible | unordered).any():
        return Work(events, row, launch_row, lost_ns, launches, [])
    findings = _clock_findings(shift_ns, drift_ns) + _findings(events, row, until_ns, impossible | unordered)
    kept = ~impossible | (until_ns > events.start_ns[row])
    bounded = _bounded(events, row, until_ns, kept, shift_ns)
    return Work(bounded, row[kept], launch_row[kept], lost_ns, launches, findings)


def _join_launches(events: Events, device: Ints, calls: Ints) -> Ints:
    """Return for each device row the row of the earliest of the calls with its correlation, or -1."""
    launches = calls[events.correlation[calls] >= 0]
    if not len(launches):
        return np.full(len(device), -1, np.int64)
    launches = launches[np.lexsort((events.start_ns[launches], events.correlation[launches]))]
    ids = events.correlation[launches]
    wanted = events.correlation[device]
    first = np.minimum(np.searchsorted(ids, wanted, side="left"), len(ids) - 1)
    return np.where(ids[first] == wanted, launches[first], -1)


def _launched_at_once(events: Events, launch_row: Ints) -> bool:
    """Return whether one call, which launches no graph, has most of the trace as its work: no correlation is true."""
    number = np.bincount(launch_row[launch_row >= 0], minlength=1)
    if 2 * (number.max() - 1) <= len(launch_row):
        return False
    is_graph = events.shapes.starting_with(call_patterns().graph_launch)
    return not is_graph[events.name[np.argmax(number)]]


def _clock_findings(shift_ns: int, drift_ns: int) -> list[Observation]:
    severity: Severity = "warning" if max(abs(shift_ns), drift_ns) >= _LONGEST_LATENCY_NS else "info"
    found = [
        Observation("device_clock_differs", {"ns": shift_ns}, "behind", severity),
        Observation("device_clock_differs", {"ns": -shift_ns}, "ahead", severity),
        Observation("device_clock_differs", {"ns": drift_ns}, "drifts", severity),
    ]
    return [one for one in found if one.values["ns"] > 0]


def _findings(events: Events, row: Ints, until_ns: Ints, impossible: NDArray[np.bool_]) -> list[Observation]:
    found = []
    if impossible.any():
        start_ns, end_ns = events.start_ns[row], events.end_ns[row]
        removed_ns = int((end_ns - np.clip(until_ns, start_ns, end_ns)).sum())
        count, least = int(impossible.sum()), REPORTED_SHARE
        is_much = count >= least * len(row) or removed_ns >= least * int((end_ns - start_ns).sum())
        values = {"activities": count, "of": len(row), "removed_ns": removed_ns}
        found.append(Observation("impossible_times", values, severity="warning" if is_much else "info"))
    return found


def _bounded(events: Events, row: Ints, until_ns: Ints, kept: NDArray[np.bool_], shift_ns: int) -> Events:
    start_ns, end_ns, kind = events.start_ns.copy(), events.end_ns.copy(), events.kind.copy()
    end_ns[row] = np.minimum(end_ns[row], np.maximum(until_ns, start_ns[row]))
    by_its_clock = np.concatenate((row, events.rows(EventKind.DEVICE_ANNOTATION)))
    start_ns[by_its_clock] += shift_ns
    end_ns[by_its_clock] += shift_ns
    kind[row[~kept]] = EventKind.OTHER
    return replace(events, start_ns=start_ns, end_ns=end_ns, kind=kind)


# ---- order of streams ----------------------------------------------------------------------------------------------


def _in_order(
    events: Events, row: Ints, launch_row: Ints, places: Ints
) -> tuple[Ints, NDArray[np.bool_], NDArray[np.bool_]]:
    """Return until when each activity can have run, at most its own end, and masks.

    Args:
        events: the trace.
        row: its activities.
        launch_row: their launches.
        places: which of them are compared.

    Returns:
        The times; which are impossible; and which contradict others of a stream whose work is in no order.
    """
    until_ns = events.end_ns[row]
    impossible, unordered = np.zeros((2, len(row)), np.bool_)
    order = places[np.argsort(events.thread[row[places]], kind="stable")]
    if len(_suspect_streams(events, row[order], launch_row[order])):
        compared = row[places]
        order = places[np.lexsort((events.end_ns[compared], events.start_ns[compared], events.thread[compared]))]
        suspect = _suspect_streams(events, row[order], launch_row[order])
        is_graph = events.shapes.starting_with(call_patterns().graph_launch)
        stream = events.thread[row[order]]
        ends = np.searchsorted(stream, suspect), np.searchsorted(stream, suspect, side="right")
        for first, last in zip(*ends, strict=True):
            own = order[first:last]
            in_graph = (launch_row[own] >= 0) & is_graph[events.name[launch_row[own]]]
            contradicts, until = _bound_stream(events, row[own], launch_row[own], in_graph)
            # If that were most of the stream, its work is in no order, and none is known to be wrong.
            if np.count_nonzero(contradicts) * 2 > len(own):
                unordered[own] = contradicts
            else:
                impossible[own], until_ns[own] = contradicts, until
    return until_ns, impossible, unordered


def _repeated(events: Events, row: Ints, launch_row: Ints) -> NDArray[np.bool_]:
    """Return which kernels are not the first that ran after a call that launches one kernel.

    None, if that were most of the trace: then its correlations do not tell.
    """
    launches = launch_row[launch_row >= 0]
    repeated = np.zeros(len(row), np.bool_)
    if not len(launches) or (number := np.bincount(launches)).max() < 2:
        return repeated
    of_kernel = (launch_row >= 0) & (events.kind[row] == EventKind.KERNEL)
    of_kernel &= _launch_one(events)[events.name[launch_row]]
    several = np.flatnonzero(of_kernel & (number[launch_row] > 1))
    early = events.start_ns[row[several]] < events.start_ns[launch_row[several]]
    several = several[np.lexsort((events.start_ns[row[several]], early, launch_row[several]))]
    repeated[several[1:]] = launch_row[several[1:]] == launch_row[several[:-1]]
    return repeated if np.count_nonzero(repeated) * 2 <= len(row) else np.zeros_like(repeated)


def _suspect_streams(events: Events, row: Ints, launch_row: Ints) -> Ints:
    """Return the streams in which some activity starts, ends or was launched before one that precedes it.

    Args:
        events: the trace.
        row: its activities, by stream.
        launch_row: their launches.
    """
    known = launch_row >= 0
    start_ns, end_ns, launched_ns = events.start_ns[row], events.end_ns[row], events.start_ns[launch_row[known]]
    at_once = (np.diff(start_ns) == 0) & (np.diff(end_ns) == 0) & (end_ns > start_ns)[1:]
    disordered = (np.diff(start_ns) < 0) | (np.diff(end_ns) < 0) | at_once
    found = [
        stream[1:][bad & (np.diff(stream) == 0)]
        for stream, bad in ((events.thread[row], disordered), (events.thread[row[known]], np.diff(launched_ns) < 0))
    ]
    return np.unique(np.concatenate(found))


def _bound_stream(
    events: Events, row: Ints, launch_row: Ints, in_graph: NDArray[np.bool_]
) -> tuple[NDArray[np.bool_], Ints]:
    """Return which activities of a stream contradict most others, and until when each can have run.

    Args:
        events: the trace.
        row: activities of the stream, by start and end.
        launch_row: their launches.
        in_graph: which are work of a graph: that of one may run at once, in what the trace calls one stream.
    """
    start_ns, end_ns = events.start_ns[row], events.end_ns[row]
    left_out = np.zeros(len(row), np.bool_)
    left_out[1:] = (np.diff(start_ns) == 0) & (np.diff(end_ns) == 0) & (end_ns > start_ns)[1:] & ~in_graph[1:]
    known = np.flatnonzero(~left_out & (launch_row >= 0))
    calls = launch_row[known]
    left_out[known] = ~_longest_ordered(events.start_ns[calls], events.end_ns[calls])
    kept = np.flatnonzero(~left_out & ~in_graph)
    overrunning = np.zeros(len(row), np.bool_)
    overrunning[kept] = ~_longest_ordered(end_ns[kept], end_ns[kept])
    kept = kept[~overrunning[kept]]
    following = np.append(kept, -1)[np.searchsorted(kept, np.arange(len(row)), side="right")]
    until_ns = np.where(overrunning & (following >= 0), np.minimum(end_ns, start_ns[following]), end_ns)
    return left_out | overrunning, np.where(left_out, start_ns, until_ns)


def _longest_ordered(first: Ints, last: Ints) -> NDArray[np.bool_]:
    """Return the most elements of which none must precede an earlier one: no `last` is before an earlier `first`.

    Elements without such a conflict are always among them, so only the others are searched, for their longest sequence
    of ascending `first`; of equally long ones, that with larger values.
    """
    limit = np.iinfo(np.int64).max
    behind = np.maximum.accumulate(np.append(-limit, first))[:-1] > last
    behind |= np.minimum.accumulate(np.append(last, limit)[::-1])[::-1][1:] < first
    kept = ~behind
    suspect = np.flatnonzero(behind)
    # Patience sorting, from the end and with opposite signs.
    tails: list[int] = []
    tail_at: list[int] = []
    before: dict[int, int] = {}
    for at, value in zip(suspect[::-1].tolist(), (-first[suspect[::-1]]).tolist(), strict=True):
        length = bisect_right(tails, value)
        before[at] = tail_at[length - 1] if length else -1
        tails[length : length + 1], tail_at[length : length + 1] = [value], [at]
    at = tail_at[-1] if tail_at else -1
    while at >= 0:
        kept[at] = True
        at = before[at]
    return kept


def _done_by(events: Events, row: Ints, launch_row: Ints, calls: Ints) -> Ints:
    """Return when a call that waits for all work of the device had returned, begun after each activity's launch.

    `_NEVER` where there is none; also with several devices, because a call waits for one of them.
    """
    calls = calls[events.shapes.starting_with(call_patterns().device_wide)[events.name[calls]]]
    devices = {events.threads[thread][0] for thread in np.unique(events.thread[row]).tolist() if events.threads}
    known = launch_row >= 0
    if not len(calls) or len(devices) != 1 or not known.any():
        return np.full(len(row), _NEVER)
    calls = calls[np.argsort(events.start_ns[calls], kind="stable")]
    returned_ns = np.append(np.minimum.accumulate(events.end_ns[calls][::-1])[::-1], _NEVER)
    launched_ns = events.end_ns[launch_row]
    # What has no launch in the trace was launched by the last one that it has.
    launched_ns[~known] = launched_ns[known].max()
    return returned_ns[np.searchsorted(events.start_ns[calls], launched_ns, side="left")]


# ---- clock of the device -------------------------------------------------------------------------------------------


def _lags_on_idle(events: Events, row: Ints, launch_row: Ints, until_ns: Ints, lost_ns: Ints) -> Ints:
    """Return, in order, from launch to start of what was launched when all earlier work had ended.

    None after a lost kernel, for which later work may have waited. `until_ns` is when each activity ended.
    """
    order = np.argsort(events.start_ns[row], kind="stable")
    row, launch_row, until_ns = row[order], launch_row[order], until_ns[order]
    free_ns = np.append(-_NEVER, np.maximum.accumulate(until_ns)[:-1])
    launched_ns = events.start_ns[launch_row]
    idle = (launch_row >= 0) & (until_ns > events.start_ns[row]) & (launched_ns > free_ns)
    idle &= launched_ns <= (lost_ns[0] if len(lost_ns) else _NEVER)
    return events.start_ns[row[idle]] - launched_ns[idle]


def _clock_shift(lag_ns: Ints, idle_lag_ns: Ints, *, is_late: bool) -> int:
    """Return what to add to the device's times, so that launches and work agree; 0 if they do.

    Args:
        lag_ns: from launch to start, of those that are in order.
        idle_lag_ns: the same of those launched on an idle device.
        is_late: whether most work ends after the call that waited for it.
    """
    if not len(lag_ns):
        return 0
    least_ns = int(lag_ns.min())
    if least_ns < 0:
        # Of a clock that is behind, more work begins before its launch than soon after it; single records are damaged.
        early, soon = np.count_nonzero(lag_ns < 0), np.count_nonzero((lag_ns >= 0) & (lag_ns < -least_ns // 2))
        return -least_ns if early > max(1, int(soon)) and -least_ns < LIMIT_NS else 0
    number = len(idle_lag_ns)
    tells = is_late or (number and least_ns >= _longest_latency_ns(number))
    return -least_ns if len(lag_ns) > 1 and tells else 0


def _clock_drift(idle_lag_ns: Ints) -> int:
    """Return by how much more work lags behind its launch at the end than at the beginning, or less; 0 if usual."""
    parts = np.array_split(idle_lag_ns, max(2, len(idle_lag_ns) // _MANY))
    if len(parts[-1]) < 2:
        return 0
    drift_ns = abs(int(parts[-1].min()) - int(parts[0].min()))
    return drift_ns if drift_ns >= _longest_latency_ns(len(parts[-1])) else 0


def _longest_latency_ns(number: int) -> int:
    """Return from when on work is late that starts soonest of so many that were launched on an idle device."""
    return _LONGEST_LATENCY_NS if number < _MANY else _SOONEST_OF_MANY_NS


# ---- lost kernels --------------------------------------------------------------------------------------------------


def _lost(events: Events, row: Ints, launch_row: Ints, calls: Ints) -> tuple[Ints, int]:
    """Return when kernels were launched that are not in the trace, ascending, and how often kernels were launched.

    Only calls count of which some have a kernel; what is captured into a graph runs later.
    """
    is_single = _launch_one(events)
    launches = calls[is_single[events.name[calls]]]
    has_work = np.zeros(len(events.kind), np.bool_)
    has_work[launch_row[launch_row >= 0]] = True
    sometimes = np.zeros(len(is_single), np.bool_)
    sometimes[events.name[launches[has_work[launches]]]] = True
    lost = launches[~has_work[launches] & sometimes[events.name[launches]]]
    # A call of the driver has the correlation of the runtime's call around it.
    lost = lost[~np.isin(events.correlation[lost], events.correlation[row])] if len(lost) else lost
    lost_ns = np.sort(events.start_ns[lost])
    return lost_ns[~covers(_captures(events, calls), lost_ns)] if len(lost) else lost_ns, len(launches)


def _launch_one(events: Events) -> NDArray[np.bool_]:
    """Return which names, as those of calls, launch one kernel each."""
    does = call_patterns()
    return events.shapes.starting_with(does.launching) & ~events.shapes.starting_with(does.graph_launch)


def _captures(events: Events, calls: Ints) -> Union:
    """Return the spans in which launches are captured into a graph."""
    begins, ends = (
        np.sort(events.start_ns[calls[events.shapes.containing(pattern)[events.name[calls]]]])
        for pattern in (_BEGINS_CAPTURE, _ENDS_CAPTURE)
    )
    if not len(begins):
        return EMPTY
    following = np.append(ends, np.iinfo(np.int64).max)[np.searchsorted(ends, begins)]
    return union(begins, following)
