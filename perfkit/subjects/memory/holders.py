"""What is allocated at a peak: by category and by who allocated it, and the largest blocks with their stacks."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from perfkit.engine.idle.host_names import is_wrapper
from perfkit.engine.idle.python_stack import FrameNames, PythonStack
from perfkit.engine.kinds.classify import rows_by_key
from perfkit.engine.steps.passes import Passes
from perfkit.phases import PREFIX
from perfkit.records.per_rank.memory import MEMORY_CATEGORIES, MemoryBlock, MemoryHolder
from perfkit.records.per_rank.sharding import PASS_PHASES, PassPhase
from perfkit.subjects.memory.blocks import Blocks, Ledger
from perfkit.trace.events import MODULE, EventKind, Events, PythonFrames, RankTrace
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


# ---- who allocated blocks --------------------------------------------------------------------------------------------


_DEEPEST: Final = 200
"""Levels of nested operators that are searched at most."""
_NONE: Final = -1


class Origins(NamedTuple):
    """Who allocated each block; None if unknown."""

    operator: list[str | None]
    context: list[str | None]
    module: list[str | None]


def find_origins(events: Events, frames: PythonFrames, annotations: Ints, blocks: Blocks) -> Origins:
    """Return who allocated the blocks.

    Args:
        events: the trace.
        frames: its Python functions.
        annotations: rows of the annotations that tell where in the program the host is.
        blocks: those that were allocated in the recording.
    """
    operators = events.rows(EventKind.OPERATOR)
    operators = operators[~named(events, operators, is_wrapper)[events.name[operators]]]
    own = annotations[~named(events, annotations, lambda name: name.startswith(PREFIX))[events.name[annotations]]]
    finder = _Finder(events, frames, blocks)
    function = finder.functions()
    annotation = finder.names_of(own, events.thread, lambda rows, at: _innermost(events, rows, at))
    module = finder.names_of(frames.module_rows, frames.thread, lambda rows, at: _innermost(frames, rows, at))
    operator = finder.names_of(operators, events.thread, lambda rows, at: _outermost(events, rows, at))
    contexts = zip(_texts(frames.names, function), _texts(events.names, annotation), strict=True)
    modules = [text and text.removeprefix(MODULE) for text in _texts(frames.names, module)]
    return Origins(
        operator=_texts(events.names, operator),
        context=[of_python or of_annotation for of_python, of_annotation in contexts],
        module=[text and shown_module(text, frames.modules.get(text, ())) for text in modules],
    )


class _Finder:
    """Looks up what ran on the threads of blocks when these were allocated."""

    def __init__(self, events: Events, frames: PythonFrames, blocks: Blocks) -> None:
        self._events = events
        self._frames = frames
        self._begin_ns = blocks.begin_ns
        self._by_thread = rows_by_key(blocks.thread)

    def names_of(self, rows: Ints, thread: NDArray[np.signedinteger[Any]], find: Callable[[Ints, Ints], Ints]) -> Ints:
        """Return for each block the name that `find` returns for the rows of its thread; -1 for none."""
        found = np.full(len(self._begin_ns), _NONE, np.int64)
        by_thread = rows_by_key(thread, rows)
        for number, places in self._by_thread.items():
            if number in by_thread:
                found[places] = find(by_thread[number], self._begin_ns[places])
        return found

    def functions(self) -> Ints:
        """Return the name of each block's innermost Python function of the program; -1 if unknown."""
        classes = FrameNames(self._frames.names)
        everything = np.arange(len(self._frames.name))
        return self.names_of(
            everything, self._frames.thread, lambda rows, at: PythonStack(self._frames, rows, classes).at(at).own
        )


def _innermost(spans: Events | PythonFrames, rows: Ints, instant: Ints) -> Ints:
    """Return the name of the innermost of `rows` at each instant; -1 for none."""
    found = Nesting(spans.start_ns[rows], spans.end_ns[rows]).at(instant)
    return np.where(found >= 0, spans.name[rows[found]], _NONE)


def _outermost(events: Events, rows: Ints, instant: Ints) -> Ints:
    """Return the name of the outermost of `rows` at each instant; -1 for none."""
    nesting = Nesting(events.start_ns[rows], events.end_ns[rows])
    current = nesting.at(instant)
    found = current.copy()
    climbing = np.flatnonzero(current >= 0)
    for _ in range(_DEEPEST):
        if not len(climbing):
            break
        current[climbing] = nesting.parents(current[climbing])
        # One that ended before the instant does not enclose it, though it ran when its child began.
        climbing = climbing[current[climbing] >= 0]
        runs = events.end_ns[rows[current[climbing]]] > instant[climbing]
        found[climbing[runs]] = current[climbing[runs]]
    return np.where(found >= 0, events.name[rows[found]], _NONE)


def named(events: Events, rows: Ints, matches: Callable[[str], bool]) -> NDArray[np.bool_]:
    """Return which names match, of those that `rows` have."""
    chosen = np.zeros(max(1, len(events.names)), np.bool_)
    used = events.names_of(rows)
    chosen[used] = [matches(events.names[name]) for name in used.tolist()]
    return chosen


def _texts(names: tuple[str, ...], found: Ints) -> list[str | None]:
    return [names[name] if name >= 0 else None for name in found.tolist()]
