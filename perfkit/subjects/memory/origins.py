"""Who allocated blocks of memory: operator, Python function or annotation, module, pass (metrics.md section 11)."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.idle.host_names import is_wrapper
from perfkit.engine.idle.python_stack import FrameNames, PythonStack
from perfkit.engine.kinds.classify import rows_by_key
from perfkit.phases import PREFIX
from perfkit.subjects.memory.blocks import Blocks
from perfkit.trace.events import MODULE, EventKind, Events, PythonFrames
from perfkit.trace.intervals import Ints, Nesting
from perfkit.trace.module_names import shown_module

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
