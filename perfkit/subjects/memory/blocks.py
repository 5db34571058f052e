"""Blocks of memory: each allocation matched with its release by address, and which the run noted (section 11)."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.records.per_rank.memory import MEMORY_CATEGORIES, MemoryCategory
from perfkit.records.trace_header import RecordedTensors
from perfkit.trace.events import HOST, AllocatorTimeline
from perfkit.trace.intervals import Ints

NOT_RECORDED: Final = -1
"""Record of a block's allocation that is before the first record."""
NEVER_NS: Final = np.iinfo(np.int64).max
_EVER_NS: Final = np.iinfo(np.int64).min
_MOST_BYTES: Final = 2.0**62
"""Sums of more bytes than this would not fit a column."""
UNDECIDED: Final = -1
_NOTED: Final[tuple[MemoryCategory, ...]] = ("parameters", "gradients", "optimizer_state")


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


class KnownTensors(NamedTuple):
    """What the run noted of one device."""

    category: Ints
    """Category of each block, as an index into `MEMORY_CATEGORIES`; `UNDECIDED` if it was not noted; shape (b,)."""
    older: dict[int, int]
    """Bytes by category of what was allocated before the first record and not released since."""
    noted_ns: list[int]
    """When the run noted something, in order."""
    state_noted_ns: int
    """When it first noted optimizer state; `NEVER_NS` if it did not."""


def of_device(tensors: Sequence[RecordedTensors] | None, kind: int, number: int) -> list[RecordedTensors]:
    """Return the records about one device, in order of time."""
    device = -1 if kind == HOST else max(number, 0)
    return sorted((record for record in tensors or () if record.device == device), key=lambda record: record.ns)


def find_known(blocks: Blocks, records: Sequence[RecordedTensors]) -> KnownTensors:
    """Look up each noted address among the blocks that were allocated when it was noted."""
    category = np.full(len(blocks.address), UNDECIDED, np.int64)
    at_address = _by_address(blocks, records)
    older: dict[int, tuple[int, int]] = {}
    for ns, address, size, code in _noted(records):
        begins, places = at_address.get(address, ([], []))
        last = bisect_right(begins, ns) - 1
        if last >= 0 and blocks.end_ns[places[last]] > ns:
            category[places[last]] = code
        elif not begins or begins[0] > ns:
            older.setdefault(address, (code, size))
    total: dict[int, int] = defaultdict(int)
    for code, size in older.values():
        total[code] += size
    state_ns = next((record.ns for record in records if record.optimizer_state), NEVER_NS)
    return KnownTensors(category, dict(total), [record.ns for record in records], state_ns)


def _noted(records: Sequence[RecordedTensors]) -> Iterator[tuple[int, int, int, int]]:
    """Yield time, address, bytes and category of everything that was noted."""
    for record in records:
        for name in _NOTED:
            code = MEMORY_CATEGORIES.index(name)
            yield from ((record.ns, address, size, code) for address, size in getattr(record, name))


def _by_address(blocks: Blocks, records: Sequence[RecordedTensors]) -> dict[int, tuple[list[int], list[int]]]:
    """Return, for each noted address, when blocks at it were allocated, in order, and their places."""
    wanted = np.fromiter({address for _, address, _, _ in _noted(records)}, np.int64)
    found: dict[int, tuple[list[int], list[int]]] = {}
    chosen = np.flatnonzero(np.isin(blocks.address, wanted))
    chosen = chosen[np.argsort(blocks.begin_ns[chosen], kind="stable")]
    columns = (blocks.address[chosen].tolist(), blocks.begin_ns[chosen].tolist(), chosen.tolist())
    for address, begin_ns, place in zip(*columns, strict=True):
        begins, places = found.setdefault(address, ([], []))
        begins.append(begin_ns)
        places.append(place)
    return found
