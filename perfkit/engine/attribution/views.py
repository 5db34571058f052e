"""Where each piece of work belongs: its path in each view, and its phase (metrics.md section 20)."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.attribution.call_paths import ROOT, PathTable, ThreadSpans
from perfkit.engine.attribution.items import Items
from perfkit.engine.idle.python_stack import FrameNames
from perfkit.engine.steps.annotations import micro_batch_names
from perfkit.engine.steps.passes import HostPhases
from perfkit.records.per_rank.sharding import PASS_PHASES
from perfkit.records.per_rank.work import OUTSIDE, UNKNOWN, WORK_PHASES, WorkView
from perfkit.trace.events import MODULE, EventKind, Events, PythonFrames
from perfkit.trace.intervals import Ints
from perfkit.trace.module_names import shown_class, shown_module

_OPTIMIZER: Final = "(optimizer)"
_GRADIENTS: Final = "(gradients)"
"""What accumulates gradients and runs hooks on them, such as DDP's reduction; it belongs to no forward operator."""
LABELS: Final = (UNKNOWN, OUTSIDE, _OPTIMIZER, _GRADIENTS)
"""What belongs to no module or function is called one of these."""


class Around(NamedTuple):
    """The span that is around each instant; columns of shape (s,)."""

    span: Ints
    """Index of the span; -1 for none."""
    label: Ints
    """Index into `LABELS`, of those without a span; otherwise -1."""


class CallSites:
    """Instants on host threads; columns of shape (s,).

    Args:
        events: the trace.
        phases: of its host threads.
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

    def around(self, spans: ThreadSpans) -> Around:
        """Return the spans around each instant, or around the forward operator that caused what runs then.

        A span that began within the backward operator comes first: activations computed again, hooks.
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
        return Around(chosen, np.where(chosen < 0, label, -1))


class Located:
    """Items, with their phase and what they belong to; each part is computed on first use."""

    def __init__(
        self,
        events: Events,
        frames: PythonFrames,
        annotations: Callable[[], Ints],
        phases: HostPhases,
        items: Callable[[], Items],
    ) -> None:
        """Locate items; `annotations` are the rows of annotations that tell where work belongs."""
        self.events, self.frames, self.phases = events, frames, phases
        self._find_items, self._find_annotations = items, annotations
        self.texts: list[str] = [*events.names, *frames.names, *LABELS]

    @cached_property
    def items(self) -> Items:
        """Its work."""
        return self._find_items()

    @cached_property
    def _operators(self) -> "_EventSpans":
        shown = self.events.kind == EventKind.OPERATOR
        shown[self._find_annotations()] = True
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
        return self._innermost_operator()

    def _innermost_operator(self) -> Ints:
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
        spans = self._functions() if view == "python" else self.module_spans
        return self._frame_paths(spans.renamed(texts), table)

    def _functions(self) -> ThreadSpans:
        return self._spans_of(FrameNames(self.frames.names).own)

    @cached_property
    def module_spans(self) -> ThreadSpans:
        """The calls of modules, by the names of their frames."""
        return self._spans_of(self._is_module())

    def module_frames(self) -> Ints:
        """Return which frames are calls of modules."""
        return np.flatnonzero(self._is_module()[self.frames.name]) if len(self.frames.name) else self.frames.name

    def _spans_of(self, wanted: NDArray[np.bool_]) -> ThreadSpans:
        frames = self.frames
        chosen = np.flatnonzero(wanted[frames.name]) if len(frames.name) else frames.name
        thread, name = frames.thread[chosen].astype(np.int64), frames.name[chosen].astype(np.int64)
        return ThreadSpans(thread, frames.start_ns[chosen], frames.end_ns[chosen], name)

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
        """Return the paths of frames around each item, or around the forward operator that caused it."""
        around = self._sites.around(spans)
        path = spans.paths(around.span, table)
        bare = around.span < 0
        texts = len(self.events.names) + len(self.frames.names) + around.label[bare]
        path[bare] = table.extend(np.full(len(texts), ROOT, np.int64), texts)
        return path

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
