"""Lanes: extra tracks for slices of one thread that overlap without nesting.

A thread's track in Perfetto is a stack: a slice that begins within another and ends after it is silently dropped (v52)
or moved. A writer therefore puts it on a separate lane, an extra thread "<thread> (2)". The header of a Chrome trace
maps each lane to its thread, and reading merges them again::

    "perfkitLanes": [[pid, tid of the lane, tid of the thread], ...]

Two metadata events per lane set its name and its position.
"""

from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from perfkit.trace.intervals import Ints

LANES_KEY: Final = "perfkitLanes"
MERGED_KEY: Final = "perfkitMerged"
"""Header key of a timeline that `perfkit merge` wrote: it has several ranks and cannot be analysed."""
MOST_LANES: Final = 64
"""Lanes per thread: more simultaneous overlaps are damage, or an attack on run time."""

ANNOUNCEMENTS: Final = 2
"""Metadata events (`thread_name`, `thread_sort_index`) per lane."""

_BLOCK_ROWS: Final = 1 << 16

Id = int | str
Lanes = dict[tuple[Id, Id], tuple[Id, Id]]
"""From (pid, tid) of a lane to those of its thread."""


def assign_lanes(thread: NDArray[Any], start_ns: Ints, end_ns: Ints) -> NDArray[np.int16]:
    """Return the lane of each slice, from 0, so that slices of one lane nest or are disjoint.

    Each slice gets the first lane that fits, in the order in which a viewer sorts them: by start, the longest first.
    Columns have shape (n,); -1 if more than `MOST_LANES` would be needed.
    """
    order = np.lexsort((-end_ns, start_ns, thread))
    lane = np.empty(len(order), np.int16)
    stacks: list[list[int]] = []
    current: Any = None
    for first in range(0, len(order), _BLOCK_ROWS):
        rows = order[first : first + _BLOCK_ROWS]
        assigned = []
        columns = (column[rows].tolist() for column in (thread, start_ns, end_ns))
        for owner, start, end in zip(*columns, strict=True):
            if owner != current:
                current, stacks = owner, []
            assigned.append(_first_fit(stacks, start, end))
        lane[rows] = assigned
    return lane


def _first_fit(stacks: list[list[int]], start: int, end: int) -> int:
    """Push a slice onto the first stack of open ends that it fits; return the index of the stack."""
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
    """Decode the header's lanes; none if another program uses the key for something else."""
    try:
        rows = msgspec.json.decode(value, type=list[tuple[Id, Id, Id]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return {(pid, lane): (pid, thread) for pid, lane, thread in rows}
