"""Where each piece of work belongs: its path in each view, and its phase (metrics.md section 20)."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from perfkit.engine.attribution.call_paths import ROOT, PathTable, ThreadSpans
from perfkit.engine.attribution.items import Items, find_items
from perfkit.engine.steps.annotations import annotation_rows, micro_batch_names
from perfkit.engine.steps.passes import HostPhases
from perfkit.python_functions import is_own
from perfkit.records.per_rank.sharding import PASS_PHASES
from perfkit.records.per_rank.work import OUTSIDE, UNKNOWN, WORK_PHASES, WorkView
from perfkit.trace.events import MODULE, EventKind, Events
from perfkit.trace.intervals import Ints
from perfkit.trace.module_names import shown_class, shown_module

if TYPE_CHECKING:
    from perfkit.engine.trace_context import TraceContext

_OPTIMIZER: Final = "(optimizer)"
_GRADIENTS: Final = "(gradients)"
"""What accumulates gradients and runs hooks on them, such as DDP's reduction; it belongs to no forward operator."""
LABELS: Final = (UNKNOWN, OUTSIDE, _OPTIMIZER, _GRADIENTS)
"""What belongs to no module or function is called one of these."""


class CallSites:
    """Instants on host threads; columns of shape (s,).

    Args:
        thread: host threads; -1 where unknown.
        instant: instants on them.
    """

    def __init__(self, events: Events, phases: HostPhases, thread: Ints, instant: Ints) -> None:
        self._events, self._thread, self._instant = events, thread, instant
        self._caused_by, self._backward_begin = phases.autograd.causes(thread, instant)
        self._gradients = phases.autograd.accumulates(thread, instant)
        known = [WORK_PHASES.index(phase) for phase in (*PASS_PHASES, "other")]
        self.phase = np.where(thread < 0, WORK_PHASES.index("unknown"), np.array(known)[phases.at(thread, instant)])
        """Place of each instant's phase in `WORK_PHASES`."""

    def paths(self, spans: ThreadSpans, table: PathTable, first_label: int) -> Ints:
        """Return the path of the span around each instant, or around the forward operator that caused what runs then.

        A span that began within the backward operator comes first: activations computed again, hooks. Without a span
        it is one of `LABELS`, whose names in the table begin with `first_label`.
        """
        direct = spans.at(self._thread, self._instant)
        began = spans.start_ns[direct] if len(spans.start_ns) else np.zeros(len(direct), np.int64)
        backward = self.phase == WORK_PHASES.index("backward")
        within = (direct >= 0) & (~backward | (began >= self._backward_begin))
        known = self._caused_by >= 0
        thread = np.where(known, self._events.thread[self._caused_by], -1).astype(np.int64)
        instant = np.where(known, self._events.start_ns[self._caused_by], 0)
        chosen = np.where(within, direct, np.where(backward, spans.at(thread, instant), direct))
        lost = (self._thread < 0) | (backward & ~within & ~known)
        chosen[self._gradients | lost] = -1
        in_optimizer = self.phase == WORK_PHASES.index("optimizer")
        places = [LABELS.index(text) for text in (_GRADIENTS, UNKNOWN, _OPTIMIZER)]
        label = np.select([self._gradients, lost, in_optimizer], places, LABELS.index(OUTSIDE))
        path = spans.paths(chosen, table)
        bare = np.flatnonzero(chosen < 0)
        path[bare] = table.extend(np.full(len(bare), ROOT, np.int64), first_label + label[bare])
        return path


class Located:
    """Items, with their phase and what they belong to; each part is computed on first use."""

    def __init__(self, trace: "TraceContext") -> None:
        self._trace = trace
        self.events, self.frames, self.phases = trace.events, trace.trace.frames, trace.phases
        self.texts: list[str] = [*self.events.names, *self.frames.names, *LABELS]

    @cached_property
    def items(self) -> Items:
        return find_items(self._trace)

    @cached_property
    def _operators(self) -> "_EventSpans":
        shown = self.events.kind == EventKind.OPERATOR
        trace = self._trace
        shown[annotation_rows(trace.events, trace.names, trace.steps, trace.step_marker)] = True
        return _EventSpans(self.events, np.flatnonzero(shown))

    @cached_property
    def _sites(self) -> CallSites:
        return CallSites(self.events, self.phases, self.items.thread, self.items.instant)

    @property
    def phase(self) -> Ints:
        """Index of each item's phase in `WORK_PHASES`."""
        return self._sites.phase

    @cached_property
    def operator_row(self) -> Ints:
        """Row of the innermost operator that ran when each item was issued; -1 without one."""
        rows = self.events.rows(EventKind.OPERATOR)
        at = _EventSpans(self.events, rows).at(self.items.thread, self.items.instant)
        issued = np.where(at >= 0, rows[at], -1) if len(rows) else np.full(len(at), -1, np.int64)
        own = self.items.row
        is_operator = (own >= 0) & (self.events.kind[own] == EventKind.OPERATOR)
        return np.where(is_operator, own, issued)

    # ---- views -----------------------------------------------------------------------------------------------------

    def paths(self, view: WorkView, table: PathTable) -> Ints:
        """Return the path of each item in a view, as a path of `table` over `texts`."""
        if view == "operator":
            return self._operator_paths(table)
        texts = self._frame_texts(view)
        spans = self._spans_of(self.frames.rows_where(is_own)) if view == "python" else self.module_spans
        return self._sites.paths(spans.renamed(texts), table, len(self.events.names) + len(self.frames.names))

    @cached_property
    def module_spans(self) -> ThreadSpans:
        """The calls of modules, by the names of their frames."""
        return self._spans_of(self.frames.module_rows)

    def _spans_of(self, chosen: Ints) -> ThreadSpans:
        frames = self.frames
        thread, name = frames.thread[chosen].astype(np.int64), frames.name[chosen].astype(np.int64)
        return ThreadSpans(thread, frames.start_ns[chosen], frames.end_ns[chosen], name)

    def has(self, view: WorkView) -> bool:
        if view == "operator":
            return True
        return len(self.frames.rows_where(is_own) if view == "python" else self.frames.module_rows) > 0

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

    def _operator_paths(self, table: PathTable) -> Ints:
        """Return the operators and annotations around each item, and its kernel; a stage's micro-batches as one."""
        items, spans = self.items, self._operators
        at = spans.at(items.thread, items.instant)
        is_operator = (items.row >= 0) & (self.events.kind[items.row] == EventKind.OPERATOR)
        own = np.searchsorted(spans.rows, items.row[is_operator])
        at[is_operator] = own
        path = spans.renamed(self._event_texts()).paths(at, table)
        lost = items.thread < 0
        outside = (at < 0) | lost
        texts = np.where(lost, self._text(UNKNOWN), self._text(OUTSIDE))
        path[outside] = table.extend(np.full(int(outside.sum()), ROOT, np.int64), texts[outside])
        on_device = (items.row >= 0) & ~is_operator
        path[on_device] = table.extend(path[on_device], self.events.name[items.row[on_device]].astype(np.int64))
        return path

    def _event_texts(self) -> Ints:
        """Return the index into `texts` of each name of an event, the same for all micro-batches of a stage."""
        texts = np.arange(len(self.events.names))
        if merged := micro_batch_names(self.events):
            texts[list(merged)] = self._interned(list(merged.values()))
        return texts

    def _text(self, text: str) -> int:
        return len(self.events.names) + len(self.frames.names) + LABELS.index(text)


class _EventSpans(ThreadSpans):
    def __init__(self, events: Events, rows: Ints) -> None:
        self.rows = rows
        super().__init__(events.thread[rows], events.start_ns[rows], events.end_ns[rows], events.name[rows])
