"""What is allocated at a peak: by category and by who allocated it, and the largest blocks with their stacks."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from perfkit.engine.kinds.classify import rows_by_key
from perfkit.engine.steps.passes import Passes
from perfkit.records.per_rank.memory import MEMORY_CATEGORIES, MemoryBlock, MemoryHolder
from perfkit.records.per_rank.sharding import PASS_PHASES, PassPhase
from perfkit.subjects.memory.blocks import Blocks
from perfkit.subjects.memory.ledger import Ledger
from perfkit.subjects.memory.origins import find_origins
from perfkit.trace.events import MODULE, PythonFrames, RankTrace
from perfkit.trace.intervals import Ints, Nesting
from perfkit.trace.module_names import shown_module

MOST_HOLDERS: Final = 100
"""Most rows that are listed."""
OTHERS: Final = "(others)"
MOST_BLOCKS: Final = 20
"""Most rows that are listed."""
_MOST_LOOKED_AT: Final = 1000
"""Of the largest blocks: those that are alike are one row."""
_MOST_FRAMES: Final = 30
_LONGEST_NAME: Final = 300


class _Key(NamedTuple):
    """What blocks of one row have in common."""

    category: int
    operator: str | None
    context: str | None
    module: str | None
    phase: PassPhase | None


def tabulate_peak(
    trace: RankTrace, ledger: Ledger, passes: Passes, annotations: Ints, records: int
) -> tuple[list[MemoryHolder], list[MemoryBlock]]:
    """Return what is allocated after `records` records: summed by who allocated it, and the largest blocks."""
    places = ledger.live(records)
    blocks = ledger.blocks.where(places)
    origins = find_origins(trace.events, trace.frames, annotations, blocks)
    texts = ([text and text[:_LONGEST_NAME] for text in column] for column in origins)
    phases = [PASS_PHASES[passes.phase[k]] if k >= 0 else None for k in passes.of(blocks.begin_ns).tolist()]
    keys = [_Key(*key) for key in zip(ledger.category[places].tolist(), *texts, phases, strict=True)]
    return _holders(keys, blocks), _largest(trace.frames, keys, blocks)


def _holders(keys: Sequence[_Key], blocks: Blocks) -> list[MemoryHolder]:
    sizes: dict[_Key, list[int]] = defaultdict(list)
    for key, size in zip(keys, blocks.bytes.tolist(), strict=True):
        sizes[key].append(size)
    return _cut(
        MemoryHolder(
            category=MEMORY_CATEGORIES[key.category],
            operator=key.operator,
            context=key.context,
            module=key.module,
            phase=key.phase,
            count=len(own),
            bytes=sum(own),
            largest_bytes=max(own),
        )
        for key, own in sizes.items()
    )


def _cut(rows: Iterable[MemoryHolder]) -> list[MemoryHolder]:
    """Return the largest rows, and one per category for all others, so that sums over rows stay exact."""
    ordered = sorted(rows, key=lambda row: (-row.bytes, row.category, row.operator or "", row.context or ""))
    others: dict[str, MemoryHolder] = {}
    for row in ordered[MOST_HOLDERS:]:
        known = others.get(row.category)
        others[row.category] = replace(
            row,
            operator=OTHERS,
            context=None,
            module=None,
            phase=None,
            count=row.count + (known.count if known else 0),
            bytes=row.bytes + (known.bytes if known else 0),
            largest_bytes=max(row.largest_bytes, known.largest_bytes if known else 0),
        )
    return ordered[:MOST_HOLDERS] + sorted(others.values(), key=lambda row: -row.bytes)


def _largest(frames: PythonFrames, keys: Sequence[_Key], blocks: Blocks) -> list[MemoryBlock]:
    """Return the largest blocks, largest first; equal ones of one stack are one row."""
    places = np.argsort(-blocks.bytes, kind="stable")[:_MOST_LOOKED_AT]
    stacks = _stacks(frames, blocks.thread[places], blocks.begin_ns[places])
    rows = zip(places.tolist(), blocks.bytes[places].tolist(), stacks, strict=True)
    counts = Counter((size, keys[place]._replace(context=None), stack) for place, size, stack in rows)
    return [
        MemoryBlock(
            category=MEMORY_CATEGORIES[key.category],
            count=count,
            bytes=size,
            operator=key.operator,
            module=key.module,
            phase=key.phase,
            stack=list(stack),
        )
        for (size, key, stack), count in list(counts.items())[:MOST_BLOCKS]
    ]


def _stacks(frames: PythonFrames, thread: Ints, instant: Ints) -> list[tuple[str, ...]]:
    """Return the Python functions that ran at each instant on its thread, innermost first; empty without any."""
    stacks: list[list[str]] = [[] for _ in instant]
    rows_of = rows_by_key(frames.thread)
    for key, places in rows_by_key(thread).items():
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
