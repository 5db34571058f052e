"""The memory of a device by category at any instant; the categories add up to the allocator's total."""

from typing import Final, NamedTuple

import numpy as np

from perfkit.records.per_rank.memory import MEMORY_CATEGORIES, MemoryBytes, MemoryCategory
from perfkit.subjects.memory.blocks import NOT_RECORDED, Blocks, KnownTensors
from perfkit.subjects.memory.categories import CODE
from perfkit.trace.events import HOST, AllocatorTimeline
from perfkit.trace.intervals import Ints

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
