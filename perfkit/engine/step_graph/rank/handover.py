"""Find where a thread hands over to another one and waits for it, as the main thread does to autograd's."""

from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.step_graph.rank.host_lanes import HostLane
from perfkit.trace.intervals import Ints, union

_MOSTLY: Final = 0.9
"""A thread of whose time this share lies within pauses of the main thread works for it; others run beside it."""


class Handovers(NamedTuple):
    """Instants of each, in order; columns of shape (h,)."""

    paused: Ints
    """The main thread stops."""
    begun: Ints
    """The other thread begins."""
    ended: Ints
    """It is done, and the main thread goes on."""
    idle_since: Ints
    """The other thread's last work before it ended, or the begin of its lane."""


def find_handovers(main: HostLane, other: HostLane) -> Handovers:
    """Return the pauses of the main thread in which the other one did all that it did around then."""
    gaps, busy = main.gaps, union(other.segments.start, other.segments.end)
    none = np.zeros(0, np.int64)
    if not len(gaps.start) or not len(busy.start):
        return Handovers(none, none, none, none)
    place = np.searchsorted(gaps.start, busy.start, side="right") - 1
    inside = (place >= 0) & (busy.end <= gaps.end[np.maximum(place, 0)])
    length = busy.end - busy.start
    if length[inside].sum() < _MOSTLY * length.sum():
        return Handovers(none, none, none, none)
    # A pause that work of the other thread reaches into, or out of, is not spent waiting for all of it.
    first, last = np.searchsorted(busy.end, gaps.start, side="right"), np.searchsorted(busy.start, gaps.end) - 1
    some = (first <= last) & (first < len(busy.start))
    first, last = np.minimum(first, len(busy.start) - 1), np.maximum(last, 0)
    some &= (busy.start[first] >= gaps.start) & (busy.end[last] <= gaps.end)
    first, last = first[some], last[some]
    return Handovers(
        paused=gaps.start[some],
        begun=busy.start[first],
        ended=busy.end[last],
        idle_since=np.where(first > 0, busy.end[np.maximum(first - 1, 0)], other.begin),
    )
