"""The snapshot of a device's memory, as a record."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

import numpy as np

from perfkit.python_functions import is_own
from perfkit.records.per_rank.memory import DeviceSnapshot, OutOfMemory, SnapshotBlock, SnapshotHolder
from perfkit.storage.memory_snapshot_file import DeviceMemory, Stack
from perfkit.subjects.memory.snapshot.levels import Levels, Lives, find_levels, find_lives

MOST_HOLDERS: Final = 100
OTHERS: Final = "(others)"
_MOST_BLOCKS: Final = 20
_MOST_FRAMES: Final = 16
_MOST_FAILURES: Final = 5


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
    largest = zip(*pairs[:, :_MOST_BLOCKS].tolist(), count[:_MOST_BLOCKS].tolist(), strict=True)
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
