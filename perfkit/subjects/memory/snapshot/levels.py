"""Allocated and reserved bytes before and after each action of the allocator's history.

The history is a ring: it may begin late. So levels are counted back from the end, which the blocks tell. Its sizes are
those that the program asked for, before the allocator rounds them up (c10/cuda/CUDACachingAllocator.cpp).
"""

from typing import Final, NamedTuple

import numpy as np

from perfkit.storage.memory_snapshot_file import DeviceMemory, History
from perfkit.trace.intervals import Ints

_RESERVING: Final = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
NOT_RECORDED: Final = -1


class Levels(NamedTuple):
    """Bytes after the first k actions, k from 0 to their number; shape (actions + 1,)."""

    allocated: Ints
    reserved: Ints


class Lives(NamedTuple):
    """Blocks of the history; columns of shape (b,)."""

    begin: Ints
    """Action that allocated it; `NOT_RECORDED` if that was before the history."""
    end: Ints
    """Action that released it; the number of actions if none did."""
    size: Ints
    stack: Ints

    def at(self, actions: int) -> "Lives":
        """Return the blocks that are there after so many actions."""
        there = (self.begin < actions) & (self.end >= actions)
        begin, end, size, stack = (column[there] for column in self)
        return Lives(begin, end, size, stack)


def changes(history: History) -> Ints:
    """Return what each action adds to the allocated bytes.

    A tensor's bytes are released when that is requested, as in `torch.cuda.memory_allocated`; snapshots without
    requests have only the completion, which may be later. A completion that comes first is of a request that the ring
    has forgotten.
    """
    released = "free_requested" if "free_requested" in history.action else "free_completed"
    signs = {"alloc": 1, released: -1}
    change: Ints = history.size * np.array([signs.get(one, 0) for one in history.action], np.int64)
    if len(change) and history.action[0] == "free_completed":
        change[0] = 0
    return change


def find_levels(memory: DeviceMemory) -> Levels | None:
    """Return the levels of a device; None if some are negative: the history does not fit the blocks."""
    history = memory.history
    reserving = history.size * np.array([_RESERVING.get(one, 0) for one in history.action], np.int64)
    allocated = _backwards(int(memory.blocks.asked[memory.blocks.allocated].sum()), changes(history))
    reserved = _backwards(int(memory.segment_size.sum()), reserving)
    return Levels(allocated, reserved) if min(allocated.min(), reserved.min()) >= 0 else None


def _backwards(end: int, change: Ints) -> Ints:
    return np.asarray(end - np.append(np.cumsum(change[::-1])[::-1], 0))


def find_lives(memory: DeviceMemory) -> Lives:
    """Return the blocks of the history, and those that the snapshot has from before it."""
    history, blocks = memory.history, memory.blocks
    change = changes(history)
    used = np.flatnonzero(change)
    order = used[np.argsort(history.address[used], kind="stable")]
    address, allocates = history.address[order], change[order] > 0
    following = np.append(order[1:], len(change))
    following[np.append(address[1:] != address[:-1], True)] = len(change)
    first = np.append(True, address[1:] != address[:-1])[: len(order)]
    older = first & ~allocates
    held = blocks.allocated & ~np.isin(blocks.address, address[allocates & (following == len(change))])
    begin = np.concatenate((order[allocates], np.full(int(older.sum() + held.sum()), NOT_RECORDED)))
    end = np.concatenate((following[allocates], order[older], np.full(int(held.sum()), len(change))))
    rows = np.concatenate((order[allocates], order[older]))
    stack = np.concatenate((history.stack[order[allocates]], np.full(int(older.sum()), -1), blocks.stack[held]))
    size = np.concatenate((history.size[rows], blocks.asked[held]))
    return Lives(begin=begin, end=end, size=size, stack=stack)
