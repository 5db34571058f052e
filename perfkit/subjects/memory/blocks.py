"""Blocks of memory: each allocation with its release, what the run noted, and bytes by category (section 11)."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.records.per_rank.memory import MEMORY_CATEGORIES, MemoryBytes, MemoryCategory
from perfkit.records.trace_header import RecordedTensors
from perfkit.trace.events import HOST, AllocatorTimeline
from perfkit.trace.intervals import Ints

CODE: Final[dict[MemoryCategory, int]] = {name: code for code, name in enumerate(MEMORY_CATEGORIES)}
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
    record, begin, end = match_releases(timeline.address, timeline.change_bytes, used)
    known = begin >= 0
    return Blocks(
        address=timeline.address[record],
        bytes=np.abs(timeline.change_bytes[record]),
        begin=begin,
        end=end,
        begin_ns=np.where(known, timeline.time_ns[record], _EVER_NS),
        end_ns=np.append(timeline.time_ns, NEVER_NS)[end],
        thread=np.where(known, timeline.thread[record], -1),
    )


def match_releases(address: NDArray[np.integer[Any]], change: Ints, used: Ints) -> tuple[Ints, Ints, Ints]:
    """Return a record of each block, the one that allocated it if there is one, and its begin and end as in `Blocks`.

    Args:
        address: of each record.
        change: the bytes that it adds.
        used: places of the records that count.
    """
    order = used[np.argsort(address[used], kind="stable")]
    opens = np.append(True, address[order][1:] != address[order][:-1])[: len(order)]
    following = np.append(np.where(opens[1:], len(change), order[1:]), len(change))[: len(order)]
    allocates = change[order] > 0
    allocated, older = order[allocates], order[opens & ~allocates]
    begin = np.append(allocated, np.full(len(older), NOT_RECORDED))
    return np.append(allocated, older), begin, np.append(following[allocates], older)


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


# ---- the memory by category at any instant ---------------------------------------------------------------------------


_RESIDUE: Final = CODE["unknown"]


class Ledger(NamedTuple):
    """Blocks with their categories, and what was there before the first record."""

    timeline: AllocatorTimeline
    blocks: Blocks
    category: Ints
    """Index into `MEMORY_CATEGORIES`, shape (b,)."""
    initial: Ints
    """Bytes by category before the first record, without those of blocks; shape (number of categories,)."""
    not_counted: dict[int, int]
    """Bytes by category that the run held before the first record, and that are not part of the total."""

    tensors_noted: bool
    """Whether the run noted where its parameters, gradients and optimizer state are."""

    def levels(self, records: Ints) -> dict[MemoryCategory, list[int]]:
        """Return the bytes of each category after the first `records` records, for each of these numbers.

        They add up to the allocator's total, which must be known at all of them.
        """
        found = np.stack([self._level(code, records) for code in range(len(MEMORY_CATEGORIES))])
        total = np.concatenate(([self.timeline.before_bytes], self.timeline.allocated_bytes))[records]
        found[_RESIDUE] += total - found.sum(axis=0)
        return dict(zip(MEMORY_CATEGORIES, found.tolist(), strict=True))

    def _level(self, code: int, records: Ints) -> Ints:
        blocks = self.blocks.where(self.category == code)
        allocated = _sum_before(np.maximum(blocks.begin, 0), blocks.bytes, records, blocks.begin == NOT_RECORDED)
        return np.asarray(self.initial[code] + allocated - _sum_before(blocks.end, blocks.bytes, records))

    def live(self, records: int) -> Ints:
        """Return the places of the blocks allocated in the recording that are there after so many records."""
        began = (self.blocks.begin != NOT_RECORDED) & (self.blocks.begin < records)
        return np.flatnonzero(began & (self.blocks.end >= records))

    def unseen_releases(self, records: int) -> int:
        """Return the bytes of such blocks whose end is another allocation at their address: when is not recorded."""
        live = self.live(records)
        ended = live[self.blocks.end[live] < len(self.timeline.change_bytes)]
        return int(self.blocks.bytes[ended[self.timeline.change_bytes[self.blocks.end[ended]] > 0]].sum())


def _sum_before(record: Ints, size: Ints, records: Ints, always: Ints | None = None) -> Ints:
    """Return, for each of `records`, the sum of the sizes whose record comes before it, or that count `always`."""
    if always is not None:
        record = np.where(always, -1, record)
    order = np.argsort(record, kind="stable")
    sums = np.concatenate((np.zeros(1, np.int64), np.cumsum(size[order])))
    return np.asarray(sums[np.searchsorted(record[order], records, side="left")])


def open_ledger(timeline: AllocatorTimeline, kind: int, blocks: Blocks, category: Ints, known: KnownTensors) -> Ledger:
    """Return the ledger of one device.

    Args:
        timeline: its records.
        kind: type of the device.
        blocks: its blocks.
        category: their categories.
        known: what the run noted.
    """
    older = known.older
    initial = np.zeros(len(MEMORY_CATEGORIES), np.int64)
    of_blocks = int(blocks.bytes[blocks.begin == NOT_RECORDED].sum())
    rest = max(0, timeline.before_bytes - of_blocks)
    held = sum(older.values())
    counted = held <= rest and kind != HOST
    if counted:
        for code, size in older.items():
            initial[code] = size
    initial[CODE["before"]] = rest - (held if counted else 0)
    # torch counts the host's memory from the start of the recording.
    outside = older if kind == HOST and held > timeline.before_bytes else {}
    return Ledger(timeline, blocks, category, initial, outside, bool(known.noted_ns))


def as_bytes(by_category: dict[int, int]) -> MemoryBytes:
    """Return bytes by index into `MEMORY_CATEGORIES` as a record."""
    return MemoryBytes(**{MEMORY_CATEGORIES[code]: size for code, size in by_category.items()})
