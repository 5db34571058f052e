"""Adds up where the host's time goes within a step: waiting for data and collectives, forward, backward, optimizer."""

from collections.abc import Callable
from threading import get_ident
from time import perf_counter_ns
from typing import Final

DATA: Final = 0
FORWARD: Final = 1
BACKWARD: Final = 2
OPTIMIZER: Final = 3
COLLECTIVE: Final = 4
_SPANS: Final = 5

_UNKNOWN: Final = -1


PhaseTimes = tuple[int, int, int, int, int]
"""Times of one step in ns, by span; -1 for what has never been seen in this run."""


class StepTimes:
    """The spans of the step in progress, of the thread that steps.

    A span within another of its kind is a part of it. Forward and backward passes within a step of the optimizer, in
    its closure, are no part of that. A span is unknown until the first of its kind has been seen, and
    then 0 in a step without one. Pauses are part of none.

    Args:
        is_paused: Whether training pauses for a checkpoint, an evaluation or logging.
        paused_ns: How long it has paused so far.
    """

    def __init__(self, is_paused: Callable[[], bool], paused_ns: Callable[[], int]) -> None:
        self._is_paused = is_paused
        self._paused_ns = paused_ns
        self._thread = get_ident()
        self.is_stopped = False
        """Whether no more is measured: hooks in torch do nothing then."""
        self._sums = [_UNKNOWN] * _SPANS
        self._depths = [0] * _SPANS
        self._begins = [0] * _SPANS
        self._inner_ends = [0] * _SPANS
        """When the last span within one of its kind ended."""
        self._passes = [0, 0, 0]
        """Forward, inferred forward, and backward time within the optimizer's step in progress."""
        self._computes_since = perf_counter_ns()
        self._paused_before = 0
        self._inferred_forward = _UNKNOWN

    def start(self, now_ns: int, paused_ns: int) -> None:
        """Begin a step in this thread, and forget what there was since the end of the one before.

        Args:
            now_ns: The time (`time.perf_counter_ns`).
            paused_ns: How long training has paused so far.
        """
        self._thread = get_ident()
        for span, total in enumerate(self._sums):
            if total > 0:
                self._sums[span] = 0
        self._depths = [0] * _SPANS
        if self._inferred_forward > 0:
            self._inferred_forward = 0
        self._computes_since, self._paused_before = now_ns, paused_ns

    def take(self) -> PhaseTimes:
        """Return the times of the step so far, of an open span until the last one of its kind within it has ended."""
        data, forward, backward, optimizer, collective = self._sums
        if self._depths[OPTIMIZER] and self._inner_ends[OPTIMIZER] > self._begins[OPTIMIZER] and self.counts:
            # An optimizer's `step` that calls that of its base class, with which the step ends.
            optimizer = max(optimizer, 0) + self._optimizer_until(self._inner_ends[OPTIMIZER])
        return data, self._inferred_forward if forward == _UNKNOWN else forward, backward, optimizer, collective

    @property
    def counts(self) -> bool:
        """Whether what this thread does now is part of the step."""
        return get_ident() == self._thread and not self._is_paused()

    def begin(self, span: int) -> None:
        """Begin a span."""
        if get_ident() != self._thread:
            return
        if not self._depths[span]:
            self._begins[span] = now = perf_counter_ns()
            if span == BACKWARD and not self._is_paused():
                self._infer_forward(now)
            elif span == OPTIMIZER:
                self._passes = [0, 0, 0]
        self._depths[span] += 1

    def end(self, span: int) -> None:
        """End a span."""
        if get_ident() != self._thread or not self._depths[span]:
            return
        self._depths[span] -= 1
        now = perf_counter_ns()
        if self._depths[span]:
            self._inner_ends[span] = now
            return
        lasted = now - self._begins[span]
        if span in (FORWARD, BACKWARD):
            self._passes[0 if span == FORWARD else 2] += lasted
        if self._is_paused():
            return
        self._sums[span] = max(self._sums[span], 0) + (self._optimizer_until(now) if span == OPTIMIZER else lasted)
        if span in (DATA, BACKWARD):  # from now on the step computes: up to the backward pass, the forward pass
            self._computes_since, self._paused_before = now, self._paused_ns()

    def add(self, span: int, lasted_ns: int) -> None:
        """Add time to a span, unless training pauses."""
        if self.counts:
            self._sums[span] = max(self._sums[span], 0) + lasted_ns

    def total(self, span: int) -> int:
        """Return the time in a kind of span so far, those that are open not included."""
        return max(self._sums[span], 0)

    def may_wait(self) -> None:
        """Note that collectives would be seen: in a step without any, the wait for them is 0."""
        self._sums[COLLECTIVE] = max(self._sums[COLLECTIVE], 0)

    def _optimizer_until(self, now: int) -> int:
        """Return the time of the optimizer's step in progress, without passes in its closure."""
        forward, inferred, backward = self._passes
        passes = backward + (inferred if self._sums[FORWARD] == _UNKNOWN else forward)
        return max(0, now - self._begins[OPTIMIZER] - passes)

    def _infer_forward(self, now: int) -> None:
        """Add the forward pass that ends where the backward pass begins."""
        lasted = max(0, now - self._computes_since - (self._paused_ns() - self._paused_before))
        self._inferred_forward = max(self._inferred_forward, 0) + lasted
        if self._depths[OPTIMIZER]:
            self._passes[1] += min(lasted, now - self._begins[OPTIMIZER])
