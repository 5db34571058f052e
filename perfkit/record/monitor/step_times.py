"""Adds up where the host's time goes within a step: waiting for data and collectives, forward, backward, optimizer."""

from collections.abc import Sequence
from threading import get_ident
from time import perf_counter_ns
from typing import Final

import torch

from perfkit.record.step_listener import PauseState

DATA: Final = 0
FORWARD: Final = 1
BACKWARD: Final = 2
OPTIMIZER: Final = 3
COLLECTIVE: Final = 4
_SPANS: Final = 5
_BEFORE_COMPUTING: Final = (DATA, BACKWARD)
"""Spans from whose end on the step computes: up to a backward pass, a forward pass."""

_UNKNOWN: Final = -1
_is_compiling: Final = torch.compiler.is_compiling


class StepTimes:
    """The spans of the step in progress, of the thread that steps.

    A span within another of its kind is a part of it. Forward and backward passes within a step of the optimizer, in
    its closure, are no part of that. A span is unknown until the first of its kind has been seen, and
    then 0 in a step without one. Pauses are part of none.

    Other work has emptied the processor's caches whenever this is called: each further function of Python costs about a
    microsecond then, whatever it does. So what is done in every step calls few.

    Args:
        pauses: Whether training pauses for a checkpoint, an evaluation or logging, and for how long it has.
    """

    __slots__ = (
        "_begins",
        "_computes_since",
        "_depths",
        "_first_sums",
        "_inner_ends",
        "_marks_forward",
        "_passes_ns",
        "_paused_before",
        "_pauses",
        "_sums",
        "_thread",
        "is_stopped",
    )

    def __init__(self, pauses: PauseState) -> None:
        self._pauses = pauses
        self._thread = get_ident()
        self.is_stopped = False
        """Whether no more is measured: hooks in torch do nothing then."""
        self._sums = [_UNKNOWN] * _SPANS
        self._first_sums = [_UNKNOWN] * _SPANS
        """What a step begins with: 0 for what has been seen."""
        self._depths = [0] * _SPANS
        self._begins = [0] * _SPANS
        self._inner_ends = [0] * _SPANS
        """When the last span within one of its kind ended."""
        self._passes_ns = 0
        """Forward and backward passes within the optimizer's step in progress."""
        self._computes_since = perf_counter_ns()
        self._paused_before = 0
        self._marks_forward = False
        """Whether forward passes are spans. Until one is, a forward pass is what lies before a backward pass."""

    def start(self, now_ns: int) -> None:
        """Begin a step in this thread, and forget what there was since the end of the one before."""
        self._thread = get_ident()
        self._sums = self._first_sums.copy()
        self._depths = [0] * _SPANS
        self._computes_since, self._paused_before = now_ns, self._pauses.total_ns

    def take(self) -> Sequence[int]:
        """Return the times of the step so far in ns, by span; -1 for what has never been seen in this run.

        Those of an open span until the last one of its kind within it has ended.
        """
        if not self._depths[OPTIMIZER] or self._inner_ends[OPTIMIZER] <= self._begins[OPTIMIZER] or not self.counts:
            return self._sums
        # An optimizer's `step` that calls that of its base class, with which the step ends.
        sums = self._sums.copy()
        sums[OPTIMIZER] = self.total(OPTIMIZER) + self._optimizer_until(self._inner_ends[OPTIMIZER])
        return sums

    @property
    def counts(self) -> bool:
        """Whether what this thread does now is part of the step."""
        return get_ident() == self._thread and not self._pauses.in_progress

    def begin(self, span: int) -> bool:
        """Begin a span, and return whether it has begun: not in other threads, nor in what is being compiled."""
        if _is_compiling() or self.is_stopped or get_ident() != self._thread:
            return False
        depths = self._depths
        if not depths[span]:
            self._begins[span] = now = perf_counter_ns()
            if span == OPTIMIZER:
                self._passes_ns = 0
            elif span == BACKWARD and not (self._marks_forward or self._pauses.in_progress):
                # The forward pass ends where the backward pass begins.
                lasted = now - self._computes_since - (self._pauses.total_ns - self._paused_before)
                sums = self._sums
                if sums[FORWARD] < 0:
                    sums[FORWARD] = self._first_sums[FORWARD] = 0
                if lasted > 0:
                    sums[FORWARD] += lasted
                    if depths[OPTIMIZER]:
                        self._passes_ns += min(lasted, now - self._begins[OPTIMIZER])
        depths[span] += 1
        return True

    def end(self, span: int, *_: object) -> None:
        """End a span; what follows it is ignored, so that this can be a hook of torch."""
        if _is_compiling() or self.is_stopped or get_ident() != self._thread:
            return
        depths = self._depths
        if depths[span] != 1:
            self._end_inner(span)
            return
        depths[span] = 0
        now = perf_counter_ns()
        lasted = now - self._begins[span]
        if span == OPTIMIZER:
            if self._passes_ns:
                lasted = self._optimizer_until(now)
        elif depths[OPTIMIZER] and span in (FORWARD, BACKWARD):  # in the closure of its step in progress
            self._passes_ns += lasted
        pauses = self._pauses
        if pauses.in_progress:
            return
        if span == FORWARD and not self._marks_forward:
            self._marks_forward = True  # from now on: forget those that were inferred
            self._sums[FORWARD] = self._first_sums[FORWARD] = 0
        sums = self._sums
        if sums[span] < 0:
            sums[span] = self._first_sums[span] = 0
        sums[span] += lasted
        if span in _BEFORE_COMPUTING:
            self._computes_since, self._paused_before = now, pauses.total_ns

    def add(self, span: int, lasted_ns: int) -> None:
        if self.counts:
            self._first_sums[span] = 0
            self._sums[span] = self.total(span) + lasted_ns

    def total(self, span: int) -> int:
        """Return the time in a kind of span so far, those that are open not included."""
        return max(self._sums[span], 0)

    def may_wait(self) -> None:
        """Note that collectives would be seen: in a step without any, the wait for them is 0."""
        if self._sums[COLLECTIVE] < 0:
            self._sums[COLLECTIVE] = self._first_sums[COLLECTIVE] = 0

    def _end_inner(self, span: int) -> None:
        """End a span within another of its kind, or one that has not begun."""
        if self._depths[span]:
            self._depths[span] -= 1
            self._inner_ends[span] = perf_counter_ns()

    def _optimizer_until(self, now: int) -> int:
        """Return the time of the optimizer's step in progress, without passes in its closure."""
        return max(0, now - self._begins[OPTIMIZER] - self._passes_ns)
