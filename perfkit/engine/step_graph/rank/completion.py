"""Find where the main thread waited for a collective of a backend on the CPU, which no event of a trace tells."""

from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.communication.collectives import Collectives
from perfkit.trace.intervals import Ints, Union

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
        collectives: those of the trace.
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
