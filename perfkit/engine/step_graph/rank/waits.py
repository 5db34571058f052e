"""Find where the main thread waited for another thread, or for a collective of a backend on the CPU.

It hands over to a thread such as autograd's, and goes on when that is done. That it waits for a collective no event of
a trace tells.
"""

from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.communication.collectives import Collectives
from perfkit.engine.step_graph.rank.host_lanes import HostLane
from perfkit.trace.intervals import Ints, Union, union

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


_LEAST_WAIT_NS: Final = 50_000
"""A collective that ends in a shorter pause of the main thread is not taken for what that waited for."""
_LATEST_SHARE: Final = 10
"""The backend's thread wakes the main thread before it records the end, which a busy machine delays: the recorded end
may be later than that of the wait, by at most a tenth of the wait."""
_MOST_PAUSES: Final = 16
"""How many pauses before the end of a collective are looked at."""


class Waits(NamedTuple):
    """Waits of the main thread, and when collectives ended."""

    row: Ints
    """The collective of each wait; an index into the next but one."""
    since: Ints
    """The wait began at this instant at the earliest; it ended with the collective."""
    ended: Ints
    """End of each collective, but not later than that of the wait for it."""


def find_waits(pauses: Union, collectives: Collectives, place: Ints) -> Waits:
    """Return the long pauses in which a collective ended: for each, the last of them.

    Args:
        pauses: spans in which the main thread does not compute.
        place: of which of them.
    """
    long = pauses.end - pauses.start >= _LEAST_WAIT_NS
    pauses = Union(pauses.start[long], pauses.end[long])
    ended = collectives.end[place]
    found = [
        _awaited(pauses, *span)
        for span in zip(
            collectives.issued[place].tolist(), collectives.start[place].tolist(), ended.tolist(), strict=True
        )
    ]
    pause = np.array(found, np.int64)
    rows = np.flatnonzero(pause >= 0)
    pause = pause[rows]
    ended[rows] = np.minimum(ended[rows], pauses.end[pause])
    last = np.lexsort((ended[rows], pause))
    rows, pause = rows[last], pause[last]
    is_last = np.append(pause[1:] != pause[:-1], np.ones(min(len(rows), 1), np.bool_))
    rows, pause = rows[is_last], pause[is_last]
    return Waits(rows, np.maximum(pauses.start[pause], collectives.issued[place[rows]]), ended)


def _awaited(pauses: Union, issued: int, started: int, ended: int) -> int:
    """Return the pause that a collective ended, of several the one that waited longest; -1 for none.

    Where its end is recorded late, the main thread may be in another pause by then, in which it hardly waited.
    """
    after = int(np.searchsorted(pauses.start, ended))
    longest, longest_ns = -1, 0
    for pause in range(after - 1, max(after - 1 - _MOST_PAUSES, -1), -1):
        until = int(pauses.end[pause])
        waited_ns = min(ended, until) - max(int(pauses.start[pause]), issued)
        fits = waited_ns >= _LEAST_WAIT_NS and (ended - until) * _LATEST_SHARE <= waited_ns and started <= until
        if fits and waited_ns > longest_ns:
            longest, longest_ns = pause, waited_ns
        if (ended - until) * _LATEST_SHARE > ended - issued:
            break
    return longest
