"""Where each piece of work belongs: its path in each view, and its phase (metrics.md section 20)."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.analysis.per_rank.attribution.autograd import Autograd
from perfkit.analysis.per_rank.attribution.call_paths import ROOT, PathTable, ThreadSpans
from perfkit.analysis.per_rank.attribution.items import Items
from perfkit.analysis.per_rank.idle.python_stack import FrameNames
from perfkit.analysis.per_rank.sharding.passes import Passes
from perfkit.schema.per_rank.sharding import PASS_PHASES
from perfkit.schema.per_rank.work import OUTSIDE, UNKNOWN, WORK_PHASES, WorkPhase, WorkView
from perfkit.trace.events import MODULE, EventKind, Events, PythonFrames
from perfkit.trace.intervals import Ints
from perfkit.trace.module_names import shown_class, shown_module

_OPTIMIZER: Final = "(optimizer)"
_GRADIENTS: Final = "(gradients)"
"""What accumulates gradients and runs hooks on them, such as DDP's reduction; it belongs to no forward operator."""
_FIXED: Final = (UNKNOWN, OUTSIDE, _OPTIMIZER, _GRADIENTS)


class Located:
    """Items, with their phase and what they belong to."""

    def __init__(self, events: Events, frames: PythonFrames, annotations: Ints, passes: Passes, items: Items) -> None:
        """Locate items; `annotations` are the rows of annotations that tell where work belongs."""
        self.events, self.frames, self.items = events, frames, items
        self.texts: list[str] = [*events.names, *frames.names, *_FIXED]
        self._autograd = Autograd(events)
        self._operators = _of_events(events, np.union1d(events.rows(EventKind.OPERATOR), annotations))
        self.operator_row = self._innermost_operator()
        self._caused_by, self._backward_begin = self._autograd.causes(items.thread, items.instant)
        self.phase = self._phases(passes)

    def _innermost_operator(self) -> Ints:
        """Return the row of the innermost operator that ran when each item was issued; -1 without one."""
        rows = self.events.rows(EventKind.OPERATOR)
        at = _of_events(self.events, rows).at(self.items.thread, self.items.instant)
        issued = np.where(at >= 0, rows[at], -1) if len(rows) else np.full(len(at), -1, np.int64)
        own = self.items.row
        is_operator = (own >= 0) & (self.events.kind[own] == EventKind.OPERATOR)
        return np.where(is_operator, own, issued)

    def _phases(self, passes: Passes) -> NDArray[np.int64]:
        """Return the place of each item's phase in `WORK_PHASES`."""
        thread, instant = self.items.thread, self.items.instant
        number = passes.of(instant)
        of_pass = np.full(len(number), -1, np.int64)
        if len(passes.phase):
            of_pass = np.where(number >= 0, passes.phase[number], -1)
        in_pass = {phase: of_pass == place for place, phase in enumerate(PASS_PHASES)}
        conditions: list[tuple[NDArray[np.bool_], WorkPhase]] = [
            (thread < 0, "unknown"),
            (in_pass["optimizer"], "optimizer"),
            (self._autograd.runs(thread, instant) | in_pass["backward"], "backward"),
            (in_pass["forward"] | self._autograd.is_forward(self.operator_row), "forward"),
        ]
        places = [WORK_PHASES.index(phase) for _, phase in conditions]
        return np.select([mask for mask, _ in conditions], places, WORK_PHASES.index("other")).astype(np.int64)

    # ---- views -----------------------------------------------------------------------------------------------------

    def paths(self, view: WorkView, table: PathTable) -> Ints:
        """Return the path of each item in a view, as a path of `table` over `texts`."""
        if view == "operator":
            return self._operator_paths(table)
        names = self._frame_texts(view)
        wanted = FrameNames(self.frames.names).own if view == "python" else self._is_module()
        chosen = np.flatnonzero(wanted[self.frames.name]) if len(self.frames.name) else self.frames.name
        spans = ThreadSpans(
            self.frames.thread[chosen].astype(np.int64),
            self.frames.start_ns[chosen],
            self.frames.end_ns[chosen],
            names[self.frames.name[chosen]] if len(chosen) else chosen,
        )
        return self._frame_paths(spans, table)

    def has(self, view: WorkView) -> bool:
        """Return whether the trace has anything for a view."""
        if view == "operator":
            return True
        wanted = FrameNames(self.frames.names).own if view == "python" else self._is_module()
        return bool(len(self.frames.name) and wanted.any())

    def _is_module(self) -> NDArray[np.bool_]:
        return np.array([name.startswith(MODULE) for name in self.frames.names] or [False], np.bool_)

    def _frame_texts(self, view: WorkView) -> Ints:
        """Return the index into `texts` of each name of a frame, as the view shows it."""
        if view == "python":
            return np.arange(len(self.frames.names)) + len(self.events.names)
        shown = shown_module if view == "module" else shown_class
        instances = [name.removeprefix(MODULE) for name in self.frames.names]
        return self._interned([shown(instance, self.frames.modules.get(instance, ())) for instance in instances])

    def _interned(self, shown: Sequence[str]) -> Ints:
        index: dict[str, int] = {}
        first = len(self.texts)
        places = [index.setdefault(name, first + len(index)) for name in shown]
        self.texts.extend(index)
        return np.array(places or [0], np.int64)

    def _frame_paths(self, spans: ThreadSpans, table: PathTable) -> Ints:
        """Return the paths of frames around each item, or around the forward operator that caused it.

        A frame that began within the backward operator comes first: activations computed again, hooks.
        """
        direct = spans.at(self.items.thread, self.items.instant)
        began = spans.start_ns[direct] if len(spans.start_ns) else np.zeros(len(direct), np.int64)
        backward = self.phase == WORK_PHASES.index("backward")
        within = (direct >= 0) & (~backward | (began >= self._backward_begin))
        known = self._caused_by >= 0
        thread = np.where(known, self.events.thread[self._caused_by], -1).astype(np.int64)
        instant = np.where(known, self.events.start_ns[self._caused_by], 0)
        chosen = np.where(within, direct, np.where(backward, spans.at(thread, instant), direct))
        gradients = self._autograd.accumulates(self.items.thread, self.items.instant)
        chosen[gradients] = -1
        path = spans.paths(chosen, table)
        lost = (self.items.thread < 0) | (backward & ~within & ~known)
        in_optimizer = self.phase == WORK_PHASES.index("optimizer")
        choices = [self._text(text) for text in (_GRADIENTS, UNKNOWN, _OPTIMIZER)]
        texts = np.select([gradients, lost, in_optimizer], choices, self._text(OUTSIDE))
        outside = (chosen < 0) | lost
        path[outside] = table.extend(np.full(int(outside.sum()), ROOT, np.int64), texts[outside])
        return path

    def _operator_paths(self, table: PathTable) -> Ints:
        """Return the operators and annotations around each item, and its kernel."""
        items, spans = self.items, self._operators
        at = spans.at(items.thread, items.instant)
        is_operator = (items.row >= 0) & (self.events.kind[items.row] == EventKind.OPERATOR)
        own = np.searchsorted(spans.rows, items.row[is_operator])
        at[is_operator] = own
        path = spans.paths(at, table)
        lost = items.thread < 0
        outside = (at < 0) | lost
        texts = np.where(lost, self._text(UNKNOWN), self._text(OUTSIDE))
        path[outside] = table.extend(np.full(int(outside.sum()), ROOT, np.int64), texts[outside])
        on_device = (items.row >= 0) & ~is_operator
        path[on_device] = table.extend(path[on_device], self.events.name[items.row[on_device]].astype(np.int64))
        return path

    def _text(self, text: str) -> int:
        return len(self.events.names) + len(self.frames.names) + _FIXED.index(text)


class _EventSpans(ThreadSpans):
    def __init__(self, events: Events, rows: Ints) -> None:
        self.rows = rows
        thread, name = events.thread[rows].astype(np.int64), events.name[rows].astype(np.int64)
        super().__init__(thread, events.start_ns[rows], events.end_ns[rows], name)


def _of_events(events: Events, rows: Ints) -> _EventSpans:
    return _EventSpans(events, rows)
