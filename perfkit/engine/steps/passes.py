"""Forward, backward and optimizer passes of a trace, on the host (metrics.md sections 12 and 20)."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.attribution.autograd import Autograd
from perfkit.engine.attribution.call_paths import ThreadSpans
from perfkit.engine.steps.windows import Steps
from perfkit.phases import PASS_NAMES, annotation
from perfkit.records.per_rank.sharding import PASS_PHASES, PassPhase
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints, Union, concatenated, measure, union

NO_PASS: Final = -1

_MARKERS: Final[dict[PassPhase, str]] = {
    "forward": (
        r"FSDP::(root_pre_forward|pre_forward|post_forward)|FullyShardedDataParallel\.(_root_pre|_pre|_post|)_?forward"
        r"|DistributedDataParallel\.forward|PP:\d+F|Forward \d+$"
    ),
    "backward": (
        r"FSDP::(pre_backward|post_backward|backward_prefetch|root_post_backward)"
        r"|FullyShardedDataParallel\._(pre|post)_backward|PP:\d+[BIW]|Backward \d+$"
    ),
    "optimizer": r"Optimizer\.step#",
}
"""What torch calls its annotations of one phase; a layer's name may follow."""
_BACKWARD: Final = PASS_PHASES.index("backward")
_NO_PART, _NODE, _PART, _WHOLE = range(4)
"""What a span is of a pass, by weight: nothing; a part, if no annotation tells of any; a part; a whole pass."""


class Passes(NamedTuple):
    """Passes in order, disjoint; columns of shape (p,)."""

    phase: Ints
    """Index into `PASS_PHASES`."""
    begin: Ints
    end: Ints

    def of(self, instant: Ints) -> Ints:
        """Return the index of the pass in which each instant lies, or `NO_PASS`."""
        if not len(self.begin):
            return np.full(len(instant), NO_PASS, np.int64)
        last = np.searchsorted(self.begin, instant, side="right") - 1
        return np.where((last >= 0) & (instant < self.end[last]), last, NO_PASS)


class HostPhases:
    """The phase of whatever runs on a host thread, and the passes of all threads.

    The innermost span around an instant on its thread tells its phase: an operator that autograd's engine runs, a
    forward operator that one of these refers to, an annotation. What lies within the engine's operators is backward
    (activations computed again), as is all that a thread runs that only the engine uses.
    """

    def __init__(self, events: Events, steps: Steps) -> None:
        self.autograd = Autograd(events, steps)
        self._events, self._steps = events, steps
        parts = list(self._rows_by_phase())
        number = [len(rows) for _, rows, _ in parts]
        self._row = np.concatenate([rows for _, rows, _ in parts])
        self._phase = np.repeat([phase for phase, _, _ in parts], number)
        self._use = np.repeat([use for _, _, use in parts], number)

    def at(self, thread: Ints, instant: Ints) -> Ints:
        """Return the phase at each instant on its thread, as an index into `PASS_PHASES`, or `NO_PASS`."""
        phase = np.append(self._phase, NO_PASS)[self._spans.at(thread, instant)]
        return np.where((phase == NO_PASS) & np.isin(thread, self._engine_threads), _BACKWARD, phase)

    @cached_property
    def passes(self) -> Passes:
        """The passes.

        perfkit's annotations of a phase are its passes. Without any, torch's annotations and the engine's operators, or
        else forward operators, are joined to one pass as long as no other phase and no other step comes between, and in
        backward no operator outside of the engine.
        """
        spans: list[Union] = []
        whole: list[bool] = []
        for phase in range(len(PASS_PHASES)):
            use = np.where(self._phase == phase, self._use, _NO_PART)
            rows = self._row[use == max(use.max(initial=_NO_PART), _NODE)]
            spans.append(union(self._events.start_ns[rows], self._events.end_ns[rows]))
            whole.append(bool((use == _WHOLE).any()))
        last = len(spans) - 1
        if not whole[last]:  # a step that is given a closure contains the other passes
            kept = measure(spans[_BACKWARD], *spans[last]) == 0
            spans[last] = Union(*(column[kept] for column in spans[last]))
        number = np.array([len(part.start) for part in spans])
        return self._joined(np.repeat(np.arange(last + 1), number), np.repeat(whole, number), concatenated(spans))

    @cached_property
    def _spans(self) -> ThreadSpans:
        events, rows = self._events, self._row
        return ThreadSpans(events.thread[rows].astype(np.int64), events.start_ns[rows], events.end_ns[rows], rows)

    @cached_property
    def _forward_threads(self) -> Ints:
        return np.unique(self._events.thread[self.autograd.differentiable_rows]).astype(np.int64)

    @cached_property
    def _engine_threads(self) -> Ints:
        threads = np.unique(self._events.thread[self.autograd.rows]).astype(np.int64)
        # Sequence numbers tell where forward ran. Without any, the engine's thread may be the one of all else.
        return threads[~np.isin(threads, self._forward_threads) & (len(self._forward_threads) > 0)]

    def _rows_by_phase(self) -> Iterator[tuple[int, Ints, int]]:
        """Yield spans, their phase, and what they are of its passes."""
        # A program may put a counter into the names of a million operators: few of them reach the patterns.
        events = self._events
        candidates = np.flatnonzero(events.shapes.beginning_with(*PASS_NAMES)).tolist()
        rows = events.rows(EventKind.ANNOTATION, EventKind.OPERATOR)
        for number, phase in enumerate(PASS_PHASES):
            for pattern, use in ((rf"{re.escape(annotation(phase))}$", _WHOLE), (_MARKERS[phase], _PART)):
                named = rows[_named(events, candidates, pattern)[events.name[rows]]]
                yield number, named[~self._in_engine(named)], use
        # What makes no node has the number of the next one that does, and may be a part of loading.
        made, numbered = self.autograd.forward_rows()
        yield PASS_PHASES.index("forward"), made, _NODE
        yield PASS_PHASES.index("forward"), numbered, _NO_PART
        yield _BACKWARD, self.autograd.rows, _PART

    def _in_engine(self, rows: Ints) -> NDArray[np.bool_]:
        return self.autograd.runs(self._events.thread[rows].astype(np.int64), self._events.start_ns[rows])

    def _joined(self, phase: Ints, whole: NDArray[np.bool_], spans: Union) -> Passes:
        if not len(phase):
            return Passes(*(np.zeros(0, np.int64) for _ in range(3)))
        order = np.argsort(spans.start, kind="stable")
        phase, whole, start, end = phase[order], whole[order], spans.start[order], spans.end[order]
        step, outside = self._steps.of(start), self._outside_engine_ns()
        opens = np.append(True, (phase[1:] != phase[:-1]) | (step[1:] != step[:-1]) | whole[1:] | whole[:-1])
        between = np.searchsorted(outside, start[1:]) > np.searchsorted(outside, end[:-1])
        opens[1:] |= (phase[1:] == _BACKWARD) & between
        first = np.flatnonzero(opens)
        begin = start[first]
        # Passes that overlap, as of two threads, end where the next begins.
        return Passes(phase[first], begin, np.minimum(np.maximum.reduceat(end, first), np.append(begin[1:], end.max())))

    def _outside_engine_ns(self) -> Ints:
        """Return when operators begin, outside of the engine, on threads that run forward."""
        rows = self._events.rows(EventKind.OPERATOR)
        rows = rows[np.isin(self._events.thread[rows], self._forward_threads)]
        return np.sort(self._events.start_ns[rows[~self._in_engine(rows)]])


def _named(events: Events, candidates: list[int], pattern: str) -> NDArray[np.bool_]:
    matching, match = np.zeros(max(1, len(events.names)), np.bool_), re.compile(pattern).match
    matching[candidates] = [match(events.names[name]) is not None for name in candidates]
    return matching
