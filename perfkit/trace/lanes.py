"""Lanes: what a viewer needs where the slices of one thread cross each other.

A thread's track in Perfetto is a stack: a slice that begins within another and outlives it is dropped (v52) or moved
without a word. So whoever writes a trace puts it on a lane of its own, an extra thread "<thread> (2)". In a Chrome
trace the header says which thread a lane is of, and reading undoes it::

    "perfkitLanes": [[pid, tid of the lane, tid of the thread], ...]

and two metadata events a lane name it and put it in its place.
"""

from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from perfkit.trace.intervals import Ints

LANES_KEY: Final = "perfkitLanes"
MERGED_KEY: Final = "perfkitMerged"
"""In the header of a timeline that `perfkit merge` wrote: it is of several ranks, and no trace to be analysed."""
MOST_LANES: Final = 64
"""Of one thread: what crosses more than so many at once is damage, or made to keep us busy."""

ANNOUNCEMENTS: Final = 2
"""Events (`thread_name`, `thread_sort_index`) that each lane brings into the file."""

_BLOCK_ROWS: Final = 1 << 16

Id = int | str
Lanes = dict[tuple[Id, Id], tuple[Id, Id]]
"""From (pid, tid) of a lane to those of its thread."""


def assign_lanes(thread: NDArray[Any], start_ns: Ints, end_ns: Ints) -> NDArray[np.int16]:
    """Return the lane of each slice, from 0, so that on each lane of a thread slices nest or stand apart.

    Each goes to the first lane that fits, in the order in which a viewer sorts them: by start, the longest first.
    Columns have shape (n,); -1 where more than `MOST_LANES` would be needed.
    """
    order = np.lexsort((-end_ns, start_ns, thread))
    lane = np.empty(len(order), np.int16)
    stacks: list[list[int]] = []
    current: Any = None
    for first in range(0, len(order), _BLOCK_ROWS):
        rows = order[first : first + _BLOCK_ROWS]
        found = []
        columns = (column[rows].tolist() for column in (thread, start_ns, end_ns))
        for owner, start, end in zip(*columns, strict=True):
            if owner != current:
                current, stacks = owner, []
            found.append(_first_fit(stacks, start, end))
        lane[rows] = found
    return lane


def _first_fit(stacks: list[list[int]], start: int, end: int) -> int:
    """Put a slice on the first of the stacks of open ends that it fits on; return which."""
    for number, open_ends in enumerate(stacks):
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        if not open_ends or end <= open_ends[-1]:
            open_ends.append(end)
            return number
    if len(stacks) == MOST_LANES:
        return -1
    stacks.append([end])
    return len(stacks) - 1


def decode_lanes(value: bytes) -> Lanes:
    """Return what the header says of lanes; nothing where another program uses the key for something else."""
    try:
        rows = msgspec.json.decode(value, type=list[tuple[Id, Id, Id]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return {(pid, lane): (pid, thread) for pid, lane, thread in rows}
