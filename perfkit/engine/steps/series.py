"""Steps of a trace whose numbers start again: each has one of its own (metrics.md section 3)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perfkit.base.step_numbers import RESTART
from perfkit.records.rank import StepBreakdown
from perfkit.trace.events import Events
from perfkit.trace.intervals import Ints

if TYPE_CHECKING:
    from perfkit.engine.steps.windows import Steps


def recorded_once(events: Events, rows: Ints) -> Ints:
    """Return events in order of time without those that repeat the name and start of the one before."""
    again = (np.diff(events.start_ns[rows]) == 0) & (np.diff(events.name[rows]) == 0)
    return np.asarray(rows[np.append(True, ~again)[: len(rows)]])


def apart(number: Sequence[int | None]) -> list[int | None]:
    """Return numbers that grow: with one that is no larger than the one before, a new series begins."""
    known = np.array(number, np.int64) % RESTART
    restarts = np.cumsum(np.diff(known, prepend=known[:1] - 1) <= 0)
    return [*(known + restarts * RESTART).tolist()]


def numbered_in_run(steps: "Steps", of_rank: Iterable[StepBreakdown]) -> "Steps":
    """Return the steps of one trace with the numbers that they have among all steps of its rank."""
    begin_ns, own = int(steps.bounds[0]), steps.number[0]
    known = next((step.step for step in of_rank if step.start_ns == begin_ns), own)
    if own is None or known is None:
        return steps
    return replace(steps, number=[None if one is None else one + known - own for one in steps.number])
