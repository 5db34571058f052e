"""Check the events of host threads, and bound or leave out what cannot be true (section 2).

No thread does the same thing twice at once, what it runs nests: a call returns before its caller does, and a step of
torch's profiler begins where the one before ends.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from perfkit.engine.kinds.classify import rows_by_key
from perfkit.engine.steps.marks import step_names, step_number
from perfkit.trace.events import EventKind, Events, RankTrace, Repair
from perfkit.trace.intervals import Ints, outer_first

REPEATED: Final = Repair("event", "of the host, already in the trace, counted once")
OVERRUNNING: Final = Repair("event", "of the host, lasting on while its thread ran the next, cut")
SHIFTED: Final = Repair("step", "overlapping the next, ended where that begins")
_ROUNDED_NS: Final = 2_000
"""By less, times contradict each other because start and duration are whole microseconds (PyTorch before 2.4)."""
_MOST_LEVELS: Final = 100
"""Recorded traces have up to 30; of more, spans are compared one by one, because damage may have thousands."""
_MIX: Final = np.int64(0x1E3779B97F4A7C15)
"""Odd, with bits in no pattern: sums of values times it, modulo 2^64, seldom agree unless all values do."""


def check_host(trace: RankTrace) -> RankTrace:
    """Return the trace with host events that can be true, and what was done with the others among `repaired`."""
    events = trace.events
    repeated = _repeated(events)
    if len(repeated):
        kind = events.kind.copy()
        kind[repeated] = EventKind.OTHER
        events = replace(events, kind=kind)
    end_ns, overrunning = _nested(events)
    if overrunning:
        events = replace(events, end_ns=end_ns)
    shifted = _overlapping_steps(events)
    if events is trace.events and not shifted:
        return trace
    repaired = Counter(trace.repaired)
    repaired += Counter({REPEATED: len(repeated), OVERRUNNING: overrunning, SHIFTED: shifted})
    return replace(trace, events=events, repaired=dict(repaired))


# ---- what is in the trace more than once ---------------------------------------------------------------------------


def _repeated(events: Events) -> Ints:
    """Return the rows that repeat an earlier one in all that identifies it.

    In 41 recorded traces of 250,000 events no two agree in kind, name, thread and number. Without a number, or where
    more than a third of a kind repeat one, as if the trace were of several recordings, the times have to agree as well:
    one operator that calls itself does in all but `correlation`, because its times are whole microseconds.
    """
    repeated = []
    for kind in (EventKind.OPERATOR, EventKind.ANNOTATION, EventKind.LAUNCH):
        rows, times = events.rows(kind), (events.start_ns, events.end_ns)
        has_number = events.correlation[rows] > 0
        numbered = _again(events, rows[has_number], ())
        at_once = _again(events, rows[has_number], times) if len(numbered) else numbered
        is_few = (len(numbered) - len(at_once)) * 3 <= len(rows)
        repeated += [numbered if is_few else at_once, _again(events, rows[~has_number], times)]
    return np.sort(np.concatenate(repeated))


def _again(events: Events, rows: Ints, times: Sequence[Ints]) -> Ints:
    """Return which rows agree with an earlier one in name, thread, correlation and `times`."""
    key = events.correlation[rows] + events.name[rows] * _MIX
    for column in times:
        key = key * _MIX + column[rows]
    ordered = np.sort(key)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(again):
        return rows[:0]
    rows = rows[np.isin(key, again)]
    values = [column[rows] for column in (events.name, events.thread, events.correlation, *times)]
    order = np.lexsort((events.start_ns[rows], *values))
    equal = np.all([value[order][1:] == value[order][:-1] for value in values], axis=0)
    return rows[order[1:][equal]]


# ---- what runs on when the next has begun --------------------------------------------------------------------------


def _nested(events: Events) -> tuple[Ints, int]:
    """Return when events end, operators and calls cut so that those of a thread nest, and how many are cut."""
    end_ns, cut = events.end_ns, 0
    for rows in rows_by_key(events.thread, events.rows(EventKind.OPERATOR, EventKind.LAUNCH)).values():
        start, end = events.start_ns[rows], events.end_ns[rows]
        if not _nest(start, end):
            bounded = _bounded(start, end)
            cut += int(np.count_nonzero(bounded != end))
            end_ns = end_ns.copy() if cut and end_ns is events.end_ns else end_ns
            if cut:
                end_ns[rows] = bounded
    return end_ns, cut


def _nest(start: Ints, end: Ints) -> bool:
    """Return whether spans nest: of each level the outermost are disjoint, but for how times are rounded."""
    order = outer_first(start, end)
    start, end = start[order], end[order]
    for _ in range(_MOST_LEVELS):
        if len(start) < 2:
            return True
        reach = np.maximum.accumulate(end)[:-1]
        is_outer = np.append(True, end[1:] > reach)
        if (is_outer[1:] & (start[1:] + _ROUNDED_NS < reach)).any():
            return False
        start, end = start[~is_outer], end[~is_outer]
    return False  # as far as is known


def _bounded(start: Ints, end: Ints) -> Ints:
    """Return the ends of spans, of which few are cut so that all nest.

    Of two that contradict each other, the one that contradicts more ends where the other does or, if it is the first of
    them, where the second starts; of equals the first.
    """
    order, starts, ends = outer_first(start, end).tolist(), start.tolist(), end.tolist()
    contradictions = [0] * len(order)
    for row, other in _outlasting(order, starts, ends):
        contradictions[row] += 1
        contradictions[other] += 1
    for row, other in _outlasting(order, starts, ends):
        if contradictions[row] > contradictions[other]:
            ends[row] = ends[other]
        else:
            ends[other] = starts[row]
    return np.array(ends, np.int64)


def _outlasting(order: list[int], starts: list[int], ends: list[int]) -> Iterator[tuple[int, int]]:
    """Yield each span and one that runs when it starts, and that it outlasts by more than times are rounded.

    What is cut meanwhile counts as it then is. A span is outlasted only once, so that the time this takes is linear.
    """
    running: list[int] = []
    for row in order:
        while running and ends[running[-1]] < ends[row]:
            other = running.pop()
            if starts[row] == starts[other]:  # the longer one has been cut
                ends[row] = ends[other]
            elif min(ends[row] - ends[other], ends[other] - starts[row], starts[row] - starts[other]) > _ROUNDED_NS:
                yield row, other
            if ends[row] == ends[other]:
                running.append(other)
        running.append(row)


# ---- steps of torch's profiler --------------------------------------------------------------------------------------


def _overlapping_steps(events: Events) -> int:
    """Return how many steps of torch's profiler overlap the next: one ends where the next begins, or it was moved."""
    annotations = events.rows(EventKind.ANNOTATION)
    steps = annotations[step_names(events, annotations, None)[events.name[annotations]]]
    count = 0
    for rows in rows_by_key(events.thread, steps).values():
        own = rows[np.argsort(events.start_ns[rows], kind="stable")]
        number = np.array([step_number(events.names[name]) for name in events.name[own].tolist()])
        overlaps = events.end_ns[own[:-1]] - events.start_ns[own[1:]] > _ROUNDED_NS
        count += int(np.count_nonzero(overlaps & (np.diff(number) == 1)))
    return count
