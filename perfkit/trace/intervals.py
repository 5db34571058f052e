"""Interval algebra on integer nanoseconds: pure functions over arrays of half-open spans `[start, end)`.

The breakdown needs two primitives: how much of a window a union of spans covers, and which of many spans is the
innermost at an instant. Neither loops over events in Python.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


TableT = TypeVar("TableT", bound=tuple[Any, ...])


def rows_of(table: TableT, rows: NDArray[np.bool_] | Ints | slice) -> TableT:
    """Return the rows of a table of columns in a mask, or at the given places."""
    make: Any = type(table)
    chosen: TableT = make(*(column[rows] for column in table))
    return chosen


def concatenated(tables: Sequence[TableT]) -> TableT:
    """Return the rows of several tables of columns, at least one, one table after the other."""
    make: Any = type(tables[0])
    joined: TableT = make(*(np.concatenate(column) for column in zip(*tables, strict=True)))
    return joined


class Union(NamedTuple):
    """Disjoint, non-touching, non-empty spans in order."""

    start: Ints
    end: Ints


EMPTY = Union(np.zeros(0, np.int64), np.zeros(0, np.int64))


def union(start: Ints, end: Ints) -> Union:
    """Merge spans that overlap or touch; empty spans vanish."""
    order = np.argsort(start, kind="stable")
    order = order[(end > start)[order]]
    if not len(order):
        return EMPTY
    # Each array is released as early as possible: there may be millions of spans.
    start = start[order]
    end = end[order]
    del order
    reach = np.maximum.accumulate(end, out=end)
    opens = np.concatenate(([True], start[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return Union(start[opens], reach[closes])


def merge(*unions: Union) -> Union:
    return union(np.concatenate([u.start for u in unions]), np.concatenate([u.end for u in unions]))


def difference(spans: Union, others: Union) -> Union:
    """Return the parts of the spans that none of the others covers."""
    cuts = distinct(np.concatenate((*spans, *others)))
    begin, end = cuts[:-1], cuts[1:]
    kept = (measure(spans, begin, end) > 0) & (measure(others, begin, end) == 0)
    return union(begin[kept], end[kept])


def measure(spans: Union, start: Ints, end: Ints) -> Ints:
    """Return how many nanoseconds of each window `[start, end)` the spans cover; windows with end <= start give 0."""
    cover = Coverage(spans)
    covered: Ints = np.maximum(cover.until(end) - cover.until(start), 0)
    return covered


class Coverage:
    """Covered time of a union of spans before any instant, precomputed for repeated queries."""

    def __init__(self, spans: Union) -> None:
        self._spans = spans
        self._before = np.concatenate((np.zeros(1, np.int64), np.cumsum(spans.end - spans.start)))
        """Covered time of the first k spans."""

    def until(self, instant: Ints) -> Ints:
        """Return the covered time before each instant."""
        begun = np.searchsorted(self._spans.start, instant, side="left")
        covered: Ints = self._before[begun]
        if len(self._spans.end):
            # The part of the last begun span that lies after the instant does not count.
            ahead = self._spans.end[begun - 1]
            ahead -= instant
            ahead[(ahead < 0) | (begun == 0)] = 0
            covered -= ahead
        return covered


def uncovered_from(spans: Union, instant: Ints) -> Ints:
    """Return, for each instant, the first instant at or after it that no span covers."""
    if not len(spans.start):
        return instant
    last = np.searchsorted(spans.start, instant, side="right") - 1
    return np.where(last >= 0, np.maximum(spans.end[last], instant), instant)


def innermost(start: Ints, end: Ints, instant: Ints) -> Ints:
    """Return, for each instant, the index of the innermost span that contains it, or -1.

    Innermost is the latest started; of several, the shortest (metrics.md section 2). The spans need not nest.
    """
    return Nesting(start, end).at(instant)


class Nesting:
    """Spans prepared for repeated queries for the innermost one, as `innermost` defines it."""

    def __init__(self, start: Ints, end: Ints) -> None:
        order = outer_first(start, end)
        self._order, self._start, self._levels = order, start[order], _maxima(end[order])
        self._place: Ints | None = None

    def at(self, instant: Ints) -> Ints:
        """Return, for each instant, the index of the innermost span that contains it, or -1."""
        return self._found(np.searchsorted(self._start, instant, side="right") - 1, instant)

    def parents(self, index: Ints) -> Ints:
        """Return, for each span of `index`, the innermost other one that runs when it starts, or -1."""
        if self._place is None:
            self._place = np.empty(len(self._order), np.int64)
            self._place[self._order] = np.arange(len(self._order))
        place = self._place[index]
        return self._found(place - 1, self._start[place])

    def _found(self, upto: Ints, instant: Ints) -> Ints:
        if not len(self._order):
            return np.full(len(instant), -1, np.int64)
        position = _last_above(self._levels, upto, instant)
        return np.where(position >= 0, self._order[position], -1)


def _last_above(levels: list[Ints], upto: Ints, threshold: Ints) -> Ints:
    """Return, for each query, the largest j <= upto with values[j] > threshold, or -1.

    Uses a binary tree of maxima of the values: a query climbs until the left sibling contains an answer, then descends
    to it. All queries advance one level per step, however deeply spans nest.
    """
    values = levels[0]
    has_any = (upto >= 0) & (np.maximum.accumulate(values)[upto] > threshold)
    node, height = np.where(has_any, upto, -1), np.zeros(len(upto), np.int64)
    climbing = np.flatnonzero(has_any & (values[upto] <= threshold))
    for level, maxima in enumerate(levels):
        if not len(climbing):
            break
        left = node[climbing] & ~1
        hit = (left != node[climbing]) & (maxima[left] > threshold[climbing])
        node[climbing[hit]], height[climbing[hit]] = left[hit], level
        climbing = climbing[~hit]
        node[climbing] >>= 1
    for level in range(len(levels) - 1, 0, -1):
        here = np.flatnonzero(height == level)
        right = 2 * node[here] + 1
        node[here] = right - (levels[level - 1][right] <= threshold[here])
        height[here] = level - 1
    return node


def _maxima(values: Ints) -> list[Ints]:
    """Return the levels of a binary tree of maxima, from the values to the root; odd lengths are padded."""
    levels = [values]
    while len(levels[-1]) > 1:
        if len(levels[-1]) % 2:
            levels[-1] = np.append(levels[-1], np.iinfo(np.int64).min)
        levels.append(np.maximum(levels[-1][::2], levels[-1][1::2]))
    return levels


class SideBySide:
    """Gives the spans of each key a stretch of one time axis, so that all keys are examined at once.

    A loop over keys costs as much per key as thousands of spans do.
    """

    def __init__(self, key: Ints, start: Ints, end: Ints) -> None:
        """Take the spans, shape (s,), of keys that are not negative."""
        count = int(key.max(initial=-1)) + 1
        self._cuts: Ints | None = None
        first, last = envelopes(key, start, end, count)
        # Only damage lasts so long that the stretches do not fit: the order of instants fits always.
        if len(key) and (last - first.astype(np.float64))[last >= first].sum() > _LONGEST_AXIS_NS:
            self._cuts = distinct(np.concatenate((start, end)))
            first, last = envelopes(key, self._ranked(start), self._ranked(end), count)
        has_spans = last >= first
        self._first, self._last = np.where(has_spans, first, 0), np.where(has_spans, last, 0)
        length = self._last - self._first + 2
        self._shift = np.cumsum(length) - length - self._first + 1

    def _ranked(self, instant: Ints) -> Ints:
        return instant if self._cuts is None else np.searchsorted(self._cuts, instant, side="right") - 1

    def place(self, key: Ints, instant: Ints) -> Ints:
        """Return where instants are on the axis; -1 for those of keys that have no spans."""
        known = (key >= 0) & (key < len(self._shift))
        key = np.where(known, key, 0)
        if not len(self._shift):
            return np.full(len(key), -1, np.int64)
        clipped = np.clip(self._ranked(instant), self._first[key] - 1, self._last[key])
        return np.where(known, clipped + self._shift[key], -1)

    def instant(self, key: Ints, place: Ints) -> Ints:
        """Return the instants at places of starts and ends."""
        at: Ints = place - self._shift[key]
        return at if self._cuts is None else self._cuts[at]


_LONGEST_AXIS_NS = 2.0**62


class Segments(NamedTuple):
    """Segments of time, in order, each with the index of its innermost span."""

    start: Ints
    end: Ints
    owner: Ints


def innermost_segments(start: Ints, end: Ints) -> Segments:
    """Split time at every start and end, and return the segments in which some span runs, with the innermost."""
    cuts = distinct(np.concatenate((start, end)))
    owner = innermost(start, end, cuts[:-1])
    inside = owner >= 0
    return Segments(cuts[:-1][inside], cuts[1:][inside], owner[inside])


def disjoint_groups(start: Ints, end: Ints, at_once: int = 1 << 16) -> Iterator[Ints]:
    """Yield the indices of all spans, in order of start, in groups that do not overlap each other.

    A group has `at_once` spans, and more if needed to reach an instant at which none runs. Spans can so be processed
    group by group, with bounded memory.
    """
    order = np.argsort(start, kind="stable")
    reach = end[order]
    np.maximum.accumulate(reach, out=reach)
    cuts = np.flatnonzero(start[order][1:] >= reach[:-1]) + 1
    del start, end, reach
    first = 0
    while first < len(order):
        at = int(np.searchsorted(cuts, first + at_once))
        last = int(cuts[at]) if at < len(cuts) else len(order)
        yield order[first:last]
        first = last


def envelopes(key: Ints, start: Ints, end: Ints, count: int) -> tuple[Ints, Ints]:
    """Return the first start and the last end of the spans of each key, shape (count,).

    A key without spans has the largest and the smallest int64.
    """
    first, last = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(first, key, start)
    np.maximum.at(last, key, end)
    return first, last


def segments_of(start_ns: Ints, end_ns: Ints, rows: Ints, begin: int, end: int) -> Segments:
    """Return the innermost of nested spans at each instant of a window, in groups because there may be millions.

    Its owners are among `rows`.
    """
    start, until = np.clip(start_ns[rows], begin, end), np.clip(end_ns[rows], begin, end)
    some = until > start
    rows, start, until = rows[some], start[some], until[some]
    found = [Segments(*EMPTY, EMPTY.start)]
    for group in disjoint_groups(start, until) if len(rows) else ():
        cut = innermost_segments(start[group], until[group])
        found.append(cut._replace(owner=rows[group][cut.owner]))
    return concatenated(found)


def distinct(values: Ints) -> Ints:
    """Return the sorted distinct values; `np.unique` hashes integers, which is ten times slower for times."""
    ordered: Ints = np.sort(values)
    fresh = np.concatenate((np.ones(min(len(ordered), 1), np.bool_), ordered[1:] != ordered[:-1]))
    return np.asarray(ordered[fresh])


def combinations(columns: Ints) -> tuple[Ints, Ints]:
    """Return the distinct combinations of values in columns of shape (c, n), ascending, and each row's index of them.

    `np.unique(axis=1)` sorts them as records, which takes ten times as long.
    """
    order = np.lexsort(columns[::-1])
    ordered = columns[:, order]
    fresh = np.ones(len(order), np.bool_)
    fresh[1:] = (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)
    index = np.empty(len(order), np.int64)
    index[order] = np.cumsum(fresh) - 1
    return ordered[:, fresh], index


def split_overlap_to_earliest(start: Ints, end: Ints) -> Union:
    """Trim each span to the part in which no earlier-started span runs.

    Returns columns of the spans' own length and order, not a merged union: pairwise disjoint, together covering the
    same instants. A span that is fully covered becomes empty (metrics.md section 5).
    """
    order = np.argsort(start, kind="stable")
    reach = end[order]
    np.maximum.accumulate(reach, out=reach)
    cut = start.copy()
    cut[order[1:]] = np.maximum(start[order[1:]], reach[:-1])
    return Union(cut, np.maximum(end, cut))


def covers(spans: Union, instant: Ints) -> NDArray[np.bool_]:
    """Return for each instant whether a span contains it."""
    if not len(spans.start):
        return np.zeros(len(instant), np.bool_)
    last = np.searchsorted(spans.start, instant, side="right") - 1
    return np.asarray((last >= 0) & (spans.end[last] > instant))


def complement(spans: Union, start: int, end: int) -> Union:
    """Return the parts of the window `[start, end)` that no span covers."""
    begin = np.concatenate(([start], spans.end)).clip(start, end)
    until = np.concatenate((spans.start, [end])).clip(start, end)
    return Union(begin[until > begin], until[until > begin])


def split(spans: Union, cuts: Ints) -> Union:
    """Return disjoint spans, cut at the given instants, which may be in any order."""
    edges = distinct(np.concatenate((spans.start, spans.end, cuts)))
    begin, until = edges[:-1], edges[1:]
    kept = covers(spans, begin)
    return Union(begin[kept], until[kept])


def contained(start: Ints, end: Ints, outer_start: Ints, outer_end: Ints) -> NDArray[np.bool_]:
    """Return for each span whether one outer span contains it (equal spans count)."""
    if not len(outer_start):
        return np.zeros(len(start), np.bool_)
    order = np.argsort(outer_start, kind="stable")
    reach = np.maximum.accumulate(outer_end[order])
    # Among the outer spans that start no later, the one with the latest end decides.
    last = np.searchsorted(outer_start[order], start, side="right") - 1
    return (last >= 0) & (reach[last] >= end)


def outer_first(start: Ints, end: Ints) -> Ints:
    """Return the order of spans by start, of those that start together the longest first."""
    order = np.argsort(start, kind="stable")  # takes a tenth of the time where they are in order
    ordered = start[order]
    return np.lexsort((-end, start)) if (ordered[1:] == ordered[:-1]).any() else order


def outermost(start: Ints, end: Ints) -> NDArray[np.bool_]:
    """Return for each span whether no other contains it; of equal spans the first counts as outermost."""
    order = outer_first(start, end)
    reach = np.maximum.accumulate(end[order])
    outer = np.ones(len(start), np.bool_)
    outer[order[1:]] = end[order][1:] > reach[:-1]
    return outer
