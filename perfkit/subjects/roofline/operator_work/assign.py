"""Which operator's work the time of an operator or kernel belongs to, where operators nest."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.kinds.classify import rows_by_key
from perfkit.trace.events import Events
from perfkit.trace.intervals import Ints, contained, outermost


class Owners(NamedTuple):
    """The counted operator of each operator; columns of shape (rows,)."""

    place: Ints
    """Place, among the same rows, of the counted operator that it is or lies within; -1 for none."""
    calls_others: NDArray[np.bool_]
    """Whether another operator begins within it."""


def find_owners(events: Events, rows: Ints, modelled: NDArray[np.bool_], composite: NDArray[np.bool_]) -> Owners:
    """Return the operator that counts for each operator.

    On each thread the outermost operators with a known result count, and what lies within them is part of them; a
    composite one counts only if it lies within none of these and contains none.

    Args:
        events: the trace.
        rows: rows of operators.
        modelled: which of them have a known result.
        composite: which of these are composite.
    """
    place = np.full(len(rows), -1, np.int64)
    calls = np.zeros(len(rows), np.bool_)
    start, end = events.start_ns[rows], events.end_ns[rows]
    for here in rows_by_key(events.thread[rows], np.arange(len(rows))).values():
        counted = _counted(start[here], end[here], modelled[here], composite[here])
        place[here] = _within(start[here], end[here], here[counted], start, end)
        calls[here] = _contains_a_start(start[here], end[here])
    return Owners(place, calls)


def _counted(start: Ints, end: Ints, modelled: NDArray[np.bool_], composite: NDArray[np.bool_]) -> Ints:
    """Return the indices of the operators of one thread that count."""
    plain = np.flatnonzero(modelled & ~composite)
    plain = plain[outermost(start[plain], end[plain])]
    passing = np.flatnonzero(modelled & composite)
    passing = passing[~contained(start[passing], end[passing], start[plain], end[plain])]
    begins = np.sort(start[plain])
    inside = np.searchsorted(begins, end[passing]) - np.searchsorted(begins, start[passing])
    passing = passing[inside == 0]
    passing = passing[outermost(start[passing], end[passing])]
    return np.concatenate((plain, passing))


def _within(start: Ints, end: Ints, owners: Ints, all_starts: Ints, all_ends: Ints) -> Ints:
    """Return for each span the owner that contains it, or -1; owners do not overlap."""
    if not len(owners):
        return np.full(len(start), -1, np.int64)
    owners = owners[np.argsort(all_starts[owners], kind="stable")]
    last = owners[np.maximum(np.searchsorted(all_starts[owners], start, side="right") - 1, 0)]
    inside = (all_starts[last] <= start) & (end <= all_ends[last])
    return np.where(inside, last, -1)


def _contains_a_start(start: Ints, end: Ints) -> NDArray[np.bool_]:
    """Return for each span whether another one begins within it; of equal spans, the first contains the others."""
    order = np.lexsort((-end, start))
    following = np.append(start[order][1:], np.iinfo(np.int64).max)
    found = np.zeros(len(start), np.bool_)
    found[order] = following < end[order]
    return found
