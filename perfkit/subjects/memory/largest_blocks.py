"""The largest allocations at a peak, one by one, with the Python stack that made them (metrics.md section 11)."""

from typing import Final

import numpy as np

from perfkit.engine.kinds.classify import rows_by_key
from perfkit.engine.steps.passes import Passes
from perfkit.records.per_rank.memory import MEMORY_CATEGORIES, MemoryBlock
from perfkit.records.per_rank.sharding import PASS_PHASES
from perfkit.subjects.memory.ledger import Ledger
from perfkit.subjects.memory.origins import find_origins
from perfkit.trace.events import MODULE, PythonFrames, RankTrace
from perfkit.trace.intervals import Ints, Nesting
from perfkit.trace.module_names import shown_module

MOST_BLOCKS: Final = 20
"""Most rows that are listed."""
_MOST_LOOKED_AT: Final = 1000
"""Of the largest blocks: those that are alike are one row."""
_MOST_FRAMES: Final = 30
_LONGEST_NAME: Final = 300


def tabulate_largest(
    trace: RankTrace, ledger: Ledger, passes: Passes, annotations: Ints, records: int
) -> list[MemoryBlock]:
    """Return the largest blocks that are allocated after `records` records, largest first; those alike are one row."""
    places = ledger.live(records)
    places = places[np.argsort(-ledger.blocks.bytes[places], kind="stable")][:_MOST_LOOKED_AT]
    blocks = ledger.blocks.where(places)
    origins = find_origins(trace.events, trace.frames, annotations, blocks)
    passed = passes.of(blocks.begin_ns).tolist()
    stacks = _stacks(trace.frames, blocks.thread, blocks.begin_ns)
    counts: dict[tuple[int, int, str | None, str | None, str | None, tuple[str, ...]], int] = {}
    sizes, categories = blocks.bytes.tolist(), ledger.category[places].tolist()
    for row, (size, category) in enumerate(zip(sizes, categories, strict=True)):
        phase = PASS_PHASES[passes.phase[passed[row]]] if passed[row] >= 0 else None
        key = (size, category, _short(origins.operator[row]), _short(origins.module[row]), phase, stacks[row])
        counts[key] = counts.get(key, 0) + 1
    return [
        MemoryBlock(
            category=MEMORY_CATEGORIES[category],
            count=count,
            bytes=size,
            operator=operator,
            module=module,
            phase=phase,
            stack=list(stack),
        )
        for (size, category, operator, module, phase, stack), count in list(counts.items())[:MOST_BLOCKS]
    ]


def _short(text: str | None) -> str | None:
    return text and text[:_LONGEST_NAME]


def _stacks(frames: PythonFrames, thread: Ints, instant: Ints) -> list[tuple[str, ...]]:
    """Return the Python functions that ran at each instant on its thread, innermost first; empty without any."""
    stacks: list[list[str]] = [[] for _ in instant]
    rows_of = rows_by_key(frames.thread, np.arange(len(frames.name)))
    for key, places in rows_by_key(thread, np.arange(len(thread))).items():
        if key in rows_of:
            _climb(frames, rows_of[key], instant, places, stacks)
    return [tuple(stack) for stack in stacks]


def _climb(frames: PythonFrames, rows: Ints, instant: Ints, places: Ints, stacks: list[list[str]]) -> None:
    """Append the frames of one thread, level by level."""
    nesting = Nesting(frames.start_ns[rows], frames.end_ns[rows])
    current = nesting.at(instant[places])
    for _ in range(_MOST_FRAMES):
        within = current >= 0
        places, current = places[within], current[within]
        if not len(places):
            return
        # One that ended before the instant does not enclose it, though it ran when its child began.
        runs = frames.end_ns[rows[current]] > instant[places]
        for place, row in zip(places[runs].tolist(), rows[current[runs]].tolist(), strict=True):
            stacks[place].append(_shown(frames, frames.names[frames.name[row]]))
        current = nesting.parents(current)


def _shown(frames: PythonFrames, name: str) -> str:
    instance = name.removeprefix(MODULE)
    shown = name if instance == name else MODULE + shown_module(instance, frames.modules.get(instance, ()))
    return shown[:_LONGEST_NAME]
