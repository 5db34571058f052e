"""Whether the mean step changed unlike the median one, which knows nothing of what only some steps do."""

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Final

from perfkit.comparison.metrics import STEP_TIME, metrics
from perfkit.schema.common import Finding, MeasuredOn
from perfkit.schema.run import RunReport
from perfkit.util.formatting import duration, percent_change

_UNLIKE: Final = 0.1
"""Relative difference of the two changes from which it is reported."""
_FEWEST_STEPS: Final = 3


def mean_step(before: Sequence[RunReport], after: Sequence[RunReport], measured_on: MeasuredOn | None) -> list[Finding]:
    """Return a finding if the mean step changed otherwise than the median one (metrics.md section 7).

    Args:
        before: the runs of one side.
        after: those of the other.
        measured_on: as in `metrics`.
    """
    sides = [[_steps_ns(run, measured_on) for run in side] for side in (before, after)]
    if any(len(steps) < _FEWEST_STEPS for side in sides for steps in side):
        return []
    (old, new), medians = (_of_sides(sides, fmean), _of_sides(sides, median))
    step_times = _of_sides([[_step_time_samples(run, measured_on) for run in side] for side in (before, after)], median)
    # Ranks that do not meet in each step may each be slow in others: then `step_time` may have changed as the mean did.
    if not all((old, *medians, *step_times)) or not all(_is_unlike(new / old, *pair) for pair in (medians, step_times)):
        return []
    old_median, new_median = medians
    # Of the side whose mean is further from its median.
    longer = max((old / old_median, new / new_median), key=lambda ratio: abs(ratio - 1)) > 1
    of_one = measured_on != "plain" and any(len(run.ranks) > 1 for run in (*before, *after))
    message = (
        f"the mean step changed by {percent_change(new / old)} ({duration(old)} before, {duration(new)} after), the "
        f"median step{' of the same rank' if of_one else ''} by {percent_change(new_median / old_median)}: some steps "
        f"take much {'more' if longer else 'less'} time than most"
    )
    return [Finding(code="mean_step_disagrees", severity="warning", message=message)]


def _of_sides(sides: Sequence[Sequence[Sequence[float]]], value: Callable[[Sequence[float]], float]) -> Sequence[float]:
    """Return for each side the median over its runs of a value of their steps."""
    return [median(map(value, side)) for side in sides]


def _is_unlike(change: float, old: float, new: float) -> bool:
    return abs(change / (new / old) - 1) >= _UNLIKE


def _step_time_samples(run: RunReport, measured_on: MeasuredOn | None) -> Sequence[float]:
    known = metrics(run, measured_on).get(STEP_TIME)
    return known.samples if known else []


def _steps_ns(run: RunReport, measured_on: MeasuredOn | None) -> Sequence[float]:
    """Return the steps (ns) that mean and median are of: of traces those of the rank with the longest mean step.

    Between two meetings each rank has its own slow steps, so that the slowest ranks of all steps are slower than any.
    """
    if measured_on == "plain":
        return _step_time_samples(run, measured_on)
    ranks = [[step.wall_ns for step in rank.steps] for rank in run.ranks if rank.steps]
    return max(ranks, key=fmean, default=[])
