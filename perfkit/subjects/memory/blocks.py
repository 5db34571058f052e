"""Blocks of memory: each allocation matched with its release by address (metrics.md section 11)."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.events import AllocatorTimeline
from perfkit.trace.intervals import Ints

NOT_RECORDED: Final = -1
"""Record of a block's allocation that is before the first record."""
NEVER_NS: Final = np.iinfo(np.int64).max
_EVER_NS: Final = np.iinfo(np.int64).min
_MOST_BYTES: Final = 2.0**62
"""Sums of more bytes than this would not fit a column."""


class Blocks(NamedTuple):
    """Allocations of one device; columns of shape (b,)."""

    address: Ints
    bytes: Ints
    begin: Ints
    """Record that allocated it; `NOT_RECORDED` if it was allocated before and released in the recording."""
    end: Ints
    """Record that released it; the number of records if none did."""
    begin_ns: Ints
    """The smallest int64 if allocated before the recording."""
    end_ns: Ints
    """`NEVER_NS` if not released in the recording."""
    thread: Ints
    """Thread that allocated it; -1 if not recorded."""

    def where(self, chosen: NDArray[np.bool_] | Ints) -> "Blocks":
        """Return the chosen blocks."""
        address, size, begin, end, begin_ns, end_ns, thread = (column[chosen] for column in self)
        return Blocks(address, size, begin, end, begin_ns, end_ns, thread)


def find_blocks(timeline: AllocatorTimeline) -> Blocks | None:
    """Return the blocks of a device; None if the records have no addresses, or sizes that no device has.

    A second allocation at an address ends the first, whose release is missing. A release at an address without an
    allocation belongs to a block from before the recording if it is the first record there, else to none.
    """
    used = np.flatnonzero((timeline.address >= 0) & (timeline.change_bytes != 0))
    changes = np.abs(timeline.change_bytes[used])
    if not len(used) or float(changes.sum(dtype=np.float64)) > _MOST_BYTES:
        return None
    order = used[np.argsort(timeline.address[used], kind="stable")]
    address = timeline.address[order]
    opens = np.append(True, address[1:] != address[:-1])
    following = np.append(np.where(opens[1:], len(timeline.time_ns), order[1:]), len(timeline.time_ns))
    allocates = timeline.change_bytes[order] > 0
    older = opens & ~allocates
    begin = np.concatenate((order[allocates], np.full(int(older.sum()), NOT_RECORDED)))
    end = np.concatenate((following[allocates], order[older]))
    known = begin >= 0
    return Blocks(
        address=np.concatenate((address[allocates], address[older])),
        bytes=np.abs(timeline.change_bytes[np.where(known, begin, end)]),
        begin=begin,
        end=end,
        begin_ns=np.where(known, timeline.time_ns[begin], _EVER_NS),
        end_ns=np.append(timeline.time_ns, NEVER_NS)[end],
        thread=np.where(known, timeline.thread[begin], -1),
    )
