"""What the host was doing at given instants: the phase, and the module or function that anything then belongs to."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.attribution.autograd import Autograd
from perfkit.engine.attribution.call_paths import ThreadSpans
from perfkit.engine.steps.passes import Passes
from perfkit.records.per_rank.sharding import PASS_PHASES
from perfkit.records.per_rank.work import OUTSIDE, UNKNOWN, WORK_PHASES, WorkPhase
from perfkit.trace.events import Events
from perfkit.trace.intervals import Ints

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
        autograd: its backward operators.
        passes: its passes.
        thread: host threads; -1 where unknown.
        instant: instants on them.
        operator: rows of the operators that ran then; -1 without one.
    """

    def __init__(
        self, events: Events, autograd: Autograd, passes: Passes, thread: Ints, instant: Ints, operator: Ints
    ) -> None:
        self._events, self._thread, self._instant = events, thread, instant
        self._caused_by, self._backward_begin = autograd.causes(thread, instant)
        self._gradients = autograd.accumulates(thread, instant)
        self.phase = _phases(autograd, passes, thread, instant, operator)
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


def _phases(autograd: Autograd, passes: Passes, thread: Ints, instant: Ints, operator: Ints) -> Ints:
    number = passes.of(instant)
    of_pass = np.full(len(number), -1, np.int64)
    if len(passes.phase):
        of_pass = np.where(number >= 0, passes.phase[number], -1)
    in_pass = {phase: of_pass == place for place, phase in enumerate(PASS_PHASES)}
    conditions: list[tuple[NDArray[np.bool_], WorkPhase]] = [
        (thread < 0, "unknown"),
        (in_pass["optimizer"], "optimizer"),
        (autograd.runs(thread, instant) | in_pass["backward"], "backward"),
        (in_pass["forward"] | autograd.is_forward(operator), "forward"),
    ]
    places = [WORK_PHASES.index(phase) for _, phase in conditions]
    return np.select([mask for mask, _ in conditions], places, WORK_PHASES.index("other")).astype(np.int64)
