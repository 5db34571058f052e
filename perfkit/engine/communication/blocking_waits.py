"""Waits for a collective within an operator that issued it, on a CPU-only trace (metrics.md section 2).

A custom `autograd.Function`, or a hook that autograd runs, blocks in Python until a collective has ended. Nothing is
recorded of the wait itself: it looks like time of the operator around it.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.intervals import Ints, Segments

_LATEST_NS: Final = 500_000
"""A thread that waits goes on this soon after the collective has ended, or within a tenth of its wait."""
_SHARE: Final = 10


class CollectiveSpans(NamedTuple):
    """The backend's collectives on all threads, by end; shape (c,)."""

    start: Ints
    end: Ints


def waits_until(
    cut: Segments,
    follows: NDArray[np.bool_],
    communicates: NDArray[np.bool_],
    begin_ns: Ints,
    end_ns: Ints,
    spans: CollectiveSpans,
) -> Ints:
    """Return until when each segment of its thread waits for a collective; its own start if it does not.

    It waits if it comes right after the operator that issued the collective, and the thread goes on right after the
    collective has ended. One that is waited for elsewhere ends at another time.

    Args:
        cut: segments of threads by their innermost operator, shape (s,).
        follows: whether a segment begins where the one before it ends, on the same thread, shape (s - 1,).
        communicates: whether that operator is communication, shape (s,).
        begin_ns: when that operator begins, shape (s,).
        end_ns: when it ends.
        spans: the collectives.
    """
    until = cut.start.copy()
    issued = communicates[:-1] & (end_ns[:-1] == cut.end[:-1])
    around = ~communicates[1:] & (begin_ns[1:] <= begin_ns[:-1]) & follows
    after = 1 + np.flatnonzero(issued & around)
    if not len(after) or not len(spans.end):
        return until
    last = np.searchsorted(spans.end, cut.end[after], side="right") - 1
    ended_ns = spans.end[last]
    waited_ns, later_ns = ended_ns - cut.start[after], cut.end[after] - ended_ns
    waits = (last >= 0) & (waited_ns > 0) & (spans.start[last] >= begin_ns[after - 1])
    waits &= later_ns <= np.maximum(_LATEST_NS, waited_ns // _SHARE)
    until[after[waits]] = ended_ns[waits]
    return until
