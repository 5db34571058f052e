"""The snapshot of a device's memory, as a record."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.python_functions import is_own
from perfkit.records.per_rank.memory import DeviceSnapshot, OutOfMemory, SnapshotBlock, SnapshotHolder
from perfkit.storage.memory_snapshot_file import DeviceMemory, History, Stack
from perfkit.subjects.memory.blocks import NOT_RECORDED, match_releases
from perfkit.subjects.memory.holders import MOST_BLOCKS, MOST_HOLDERS, OTHERS
from perfkit.trace.intervals import Ints

_MOST_FRAMES: Final = 16
_MOST_FAILURES: Final = 5
_RESERVING: Final = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


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
    record, begin, end = match_releases(history.address, change, np.flatnonzero(change))
    open_at = history.address[record][(begin >= 0) & (end == len(change))]
    held = blocks.allocated & ~np.isin(blocks.address, open_at)
    count = int(held.sum())
    return Lives(
        begin=np.append(begin, np.full(count, NOT_RECORDED)),
        end=np.append(end, np.full(count, len(change))),
        size=np.append(history.size[record], blocks.asked[held]),
        stack=np.append(np.where(begin >= 0, history.stack[record], -1), blocks.stack[held]),
    )


def tabulate(memory: DeviceMemory) -> DeviceSnapshot:
    """Return who holds a device's memory at the peak of the history, and how it is divided at its end."""
    blocks = memory.blocks
    in_use = blocks.allocated | blocks.waiting
    used_segments = np.bincount(blocks.segment[in_use], minlength=len(memory.segment_size)) > 0
    free = ~in_use
    within = used_segments[blocks.segment[free]]
    has_levels = len(memory.history.action) > 0
    levels = find_levels(memory) if has_levels else None
    actions = len(memory.history.action) if levels is None else int(levels.allocated.argmax())
    asked = blocks.requested[blocks.allocated]
    lives = find_lives(memory).at(actions)
    return DeviceSnapshot(
        device=memory.device,
        allocated_bytes=int(blocks.size[blocks.allocated].sum()),
        waiting_bytes=int(blocks.size[blocks.waiting].sum()),
        reserved_bytes=int(memory.segment_size.sum()),
        rounding_bytes=int((blocks.size[blocks.allocated] - asked).sum()) if (asked >= 0).all() else None,
        fragmented_bytes=int(blocks.size[free][within].sum()),
        unused_bytes=int(memory.segment_size[~used_segments].sum()),
        largest_free_bytes=int(blocks.size[free].max(initial=0)),
        records=len(memory.history.action),
        peak_bytes=int(levels.allocated[actions]) if levels else None,
        reserved_at_peak_bytes=int(levels.reserved[actions]) if levels else None,
        after_records=actions if levels else None,
        holders=_holders(lives, memory.stacks),
        largest=_largest(lives, memory.stacks),
        out_of_memory=_failures(memory, levels) if levels else [],
    )


def function_of(stack: Stack) -> tuple[str | None, str | None]:
    """Return the function that a block belongs to, and what ran innermost, if that is another."""
    python = [frame for frame in stack if ".py(" in frame or frame.startswith("<")]
    own = next((frame for frame in python if is_own(frame)), None)
    inner = python[0] if python else stack[0] if stack else None
    if own is None:
        return (inner, None) if python else (None, inner)
    return own, inner if inner != own else None


def _holders(lives: Lives, stacks: Sequence[Stack]) -> list[SnapshotHolder]:
    numbers, place = np.unique(lives.stack, return_inverse=True)
    count, total, most = (np.zeros(len(numbers), np.int64) for _ in range(3))
    np.add.at(count, place, 1)
    np.add.at(total, place, lives.size)
    np.maximum.at(most, place, lives.size)
    sizes: dict[tuple[str | None, str | None], list[int]] = defaultdict(lambda: [0, 0, 0])
    for number, *figures in zip(numbers.tolist(), count.tolist(), total.tolist(), most.tolist(), strict=True):
        row = sizes[function_of(stacks[number] if number >= 0 else ())]
        row[:] = [row[0] + figures[0], row[1] + figures[1], max(row[2], figures[2])]
    rows = sorted(sizes.items(), key=lambda item: (-item[1][1], item[0][0] or "", item[0][1] or ""))
    found = [_holder(function, called, row) for (function, called), row in rows[:MOST_HOLDERS]]
    rest = [row for _, row in rows[MOST_HOLDERS:]]
    if rest:
        counts = [sum(row[0] for row in rest), sum(row[1] for row in rest), max(row[2] for row in rest)]
        found.append(_holder(OTHERS, None, counts))
    return found


def _holder(function: str | None, called: str | None, row: list[int]) -> SnapshotHolder:
    return SnapshotHolder(function=function, callee=called, count=row[0], bytes=row[1], largest_bytes=row[2])


def _largest(lives: Lives, stacks: Sequence[Stack]) -> list[SnapshotBlock]:
    pairs, count = np.unique(np.stack([-lives.size, lives.stack]), axis=1, return_counts=True)
    largest = zip(*pairs[:, :MOST_BLOCKS].tolist(), count[:MOST_BLOCKS].tolist(), strict=True)
    return [
        SnapshotBlock(count=number, bytes=-negative, stack=list(stacks[stack][:_MOST_FRAMES]) if stack >= 0 else [])
        for negative, stack, number in largest
    ]


def _failures(memory: DeviceMemory, levels: Levels) -> list[OutOfMemory]:
    history = memory.history
    places = [place for place, action in enumerate(history.action) if action == "oom"][-_MOST_FAILURES:]
    return [
        OutOfMemory(
            requested_bytes=int(history.size[place]),
            device_free_bytes=history.device_free[place],
            allocated_bytes=int(levels.allocated[place]),
            reserved_bytes=int(levels.reserved[place]),
            function=function_of(memory.stacks[history.stack[place]] if history.stack[place] >= 0 else ())[0],
        )
        for place in places
    ]
