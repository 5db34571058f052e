"""Whether the mean step changed unlike the median one, which knows nothing of what only some steps do."""

from collections.abc import Sequence
from statistics import fmean, median
from typing import Final

from perfkit.comparison.metrics import STEP_TIME, metrics
from perfkit.schema.aggregate import longest_mean_step_ns
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
    old_median, new_median = (median(median(steps) for steps in side) for side in sides)
    old, new = (median(_mean_ns(run, measured_on) for run in side) for side in (before, after))
    if not old or not old_median or not new_median:
        return []
    if abs(new / old / (new_median / old_median) - 1) < _UNLIKE:
        return []
    # Of the side whose mean is further from its median.
    longer = max((old / old_median, new / new_median), key=lambda ratio: abs(ratio - 1)) > 1
    message = (
        f"the mean step changed by {percent_change(new / old)} ({duration(old)} before, {duration(new)} after), the "
        f"median step by {percent_change(new_median / old_median)}: some steps take much "
        f"{'more' if longer else 'less'} time than most"
    )
    return [Finding(code="mean_step_disagrees", severity="warning", message=message)]


def _steps_ns(run: RunReport, measured_on: MeasuredOn | None) -> list[float]:
    known = metrics(run, measured_on).get(STEP_TIME)
    return known.samples if known else []


def _mean_ns(run: RunReport, measured_on: MeasuredOn | None) -> float:
    """Return the mean step (ns): of traces that of a rank, because between two meetings each has its own slow steps."""
    return fmean(_steps_ns(run, measured_on)) if measured_on == "plain" else longest_mean_step_ns(run)
