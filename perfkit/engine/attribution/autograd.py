"""Find the forward operator that caused what runs in backward, by autograd's sequence numbers."""

from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.attribution.call_paths import ThreadSpans
from perfkit.engine.kinds.classify import rows_by_key
from perfkit.engine.steps.windows import Steps
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints

EVALUATES: Final = "autograd::engine::evaluate_function: "
"""What the names of operators of the backward pass begin with, around all that one node of the graph runs."""
_ACCUMULATES: Final = EVALUATES + "torch::autograd::AccumulateGrad"


class Autograd:
    """The backward operators of a trace, and the forward operators that caused them."""

    def __init__(self, events: Events, steps: Steps) -> None:
        args, rows = events.operator_args, events.rows(EventKind.OPERATOR)
        sequence, forward_thread = args.sequence_of(rows), args.forward_thread_of(rows)
        caused = (sequence >= 0) & (forward_thread > 0)
        self._events, self._steps = events, steps
        self._rows, self._sequence, self._forward_thread = rows[caused], sequence[caused], forward_thread[caused]
        self._spans = _spans(events, self._rows)
        self.rows = rows[events.shapes.beginning_with(EVALUATES)[events.name[rows]] | caused]
        """Operators that the engine runs, and those that name the operator that caused them."""
        self._any = _spans(events, self.rows)
        self._accumulating = _spans(events, rows[events.shapes.beginning_with(_ACCUMULATES)[events.name[rows]]])
        candidates = (sequence >= 0) & ~caused
        self._candidates = _by_thread(events, rows[candidates], sequence[candidates])
        self._forward = self._forward_rows()

    def runs(self, thread: Ints, instant: Ints) -> NDArray[np.bool_]:
        """Return whether an operator of the backward pass runs at each instant on its thread."""
        return np.asarray(self._any.at(thread, instant) >= 0)

    def accumulates(self, thread: Ints, instant: Ints) -> NDArray[np.bool_]:
        """Return whether gradients are accumulated at each instant on its thread, which runs hooks on them too."""
        return np.asarray(self._accumulating.at(thread, instant) >= 0)

    def causes(self, thread: Ints, instant: Ints) -> tuple[Ints, Ints]:
        """Return the forward operator that caused what runs at each instant, and when the backward operator began.

        Returns:
            Rows in `Events`, -1 if unknown; and starts, the largest int64 where no backward operator runs.
        """
        span, around = self._spans.at(thread, instant), self._any.at(thread, instant)
        cause, start_ns = np.full(len(span), -1, np.int64), np.full(len(span), np.iinfo(np.int64).max)
        cause[span >= 0] = self._forward[span[span >= 0]]
        start_ns[around >= 0] = self._any.start_ns[around[around >= 0]]
        return cause, start_ns

    @cached_property
    def differentiable_rows(self) -> Ints:
        """Operators with a sequence number that the engine does not run."""
        rows = np.concatenate([self._rows[:0], *(rows for _, rows in self._candidates.values())])
        return rows[~self.runs(self._events.thread[rows], self._events.start_ns[rows])]

    def forward_rows(self) -> tuple[Ints, Ints]:
        """Return those that made the nodes of backward operators, and others with the number of one of their step.

        What makes no node after the optimizer has the number of the next step's first.
        """
        rows, followed = self.differentiable_rows, np.unique(self._forward[self._forward >= 0])
        made, numbered = np.isin(rows, followed), np.isin(self._key(rows), self._key(followed))
        return rows[made], rows[numbered & ~made]

    def _key(self, rows: Ints) -> Ints:
        """Return one number per sequence number, thread and step."""
        threads, steps = int(self._events.thread.max(initial=0)) + 1, len(self._steps.host_start_ns) + 1
        place = self._events.operator_args.sequence_of(rows) * threads + self._events.thread[rows]
        return place * steps + self._steps.of(self._events.start_ns[rows]) + 1

    def _forward_rows(self) -> Ints:
        """Return the row of the forward operator of each backward operator; -1 without one."""
        found = np.full(len(self._rows), -1, np.int64)
        for places in rows_by_key(self._forward_thread).values():
            # autograd numbers threads by itself: its thread is the one that has most of the sequence numbers.
            guesses = [_latest(*columns, self._sequence[places]) for columns in self._candidates.values()]
            if guesses:
                found[places] = max(guesses, key=lambda rows: int((rows >= 0).sum()))
        return found


def _spans(events: Events, rows: Ints) -> ThreadSpans:
    thread, name = events.thread[rows].astype(np.int64), events.name[rows].astype(np.int64)
    return ThreadSpans(thread, events.start_ns[rows], events.end_ns[rows], name)


def _by_thread(events: Events, rows: Ints, sequence: Ints) -> dict[int, tuple[Ints, Ints]]:
    """Return the sequence numbers and rows of each thread's forward operators, by number and start."""
    columns = {}
    for thread, places in rows_by_key(events.thread[rows]).items():
        ordered = places[np.lexsort((events.start_ns[rows[places]], sequence[places]))]
        columns[thread] = sequence[ordered], rows[ordered]
    return columns


def _latest(sequence: Ints, rows: Ints, wanted: Ints) -> Ints:
    """Return the last operator with each sequence number, or -1.

    An operator that makes no node of the graph has the number of the next one that does: that one begins last.
    """
    last = np.searchsorted(sequence, wanted, side="right") - 1
    return np.where((last >= 0) & (sequence[last] == wanted), rows[last], -1)
