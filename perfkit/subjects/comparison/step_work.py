"""Whether step times tell which of two runs is faster.

Only if a step does the same work in both, and if the mean step changed as the median one did, which knows nothing of
what only some steps do.
"""

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean, median
from typing import Final, TypeVar

from perfkit.records.aggregate import samples_per_step
from perfkit.records.common import MeasuredOn, Observation
from perfkit.records.run import RunReport
from perfkit.subjects.comparison.metrics import STEP_TIME, metrics

_SAME_MODEL: Final = 0.01
"""Largest relative difference of the operations per sample of one model: it is computed from rounded rates."""

ValueT = TypeVar("ValueT")


def step_work(before: Sequence[RunReport], after: Sequence[RunReport]) -> list[Observation]:
    """Return a finding if a step does other work after than before, or may do (metrics.md section 7).

    Args:
        before: the runs of one side, at least one.
        after: those of the other.
    """
    if models := _different_models(before, after):
        return [models]
    samples = [_values(side, samples_per_step) for side in (before, after)]
    if all(samples) and len(set.union(*samples)) > 1:
        return [
            Observation("samples_per_step_differ", dict(zip(("before", "after"), map(_sorted, samples), strict=True)))
        ]
    ranks = [{run.world_size for run in side} for side in (before, after)]
    if not all(samples) and len(set.union(*ranks)) > 1:
        return [Observation("ranks_differ", dict(zip(("before", "after"), map(_sorted, ranks), strict=True)))]
    return []


def _different_models(before: Sequence[RunReport], after: Sequence[RunReport]) -> Observation | None:
    """Return what tells that the models differ: their names or the operations per sample; None if nothing does."""
    names = [_values(side, _own_workload) for side in (before, after)]
    if all(names) and len(set.union(*names)) > 1:
        return Observation("models_differ", {"names": [_sorted(side) for side in names]})
    sides = [sorted(_values(side, _operations_per_sample)) for side in (before, after)]
    if not all(sides):
        return None
    least, most = min(side[0] for side in sides), max(side[-1] for side in sides)
    if most <= least * (1 + _SAME_MODEL):
        return None
    return Observation("models_differ", {"per_sample": tuple(side[0] for side in sides)}, "operations")


def _own_workload(run: RunReport) -> str | None:
    """Return the name of perfkit's workload; a script may have another name and train the same model."""
    from perfkit_workloads import WORKLOADS

    return run.workload if run.workload is not None and run.workload in WORKLOADS else None


def _operations_per_sample(run: RunReport) -> float | None:
    known = run.throughput
    if known is None or known.flops_per_s is None or not known.samples_per_s:
        return None
    return known.flops_per_s / known.samples_per_s


def _values(side: Sequence[RunReport], value: Callable[[RunReport], ValueT | None]) -> set[ValueT]:
    """Return the distinct values of the runs of a side; none unless all are known."""
    found = [value(run) for run in side]
    known = {one for one in found if one is not None}
    return known if None not in found else set()


_UNLIKE: Final = 0.1
"""Relative difference of the two changes from which it is reported."""
_FEWEST_STEPS: Final = 3


def mean_step(
    before: Sequence[RunReport], after: Sequence[RunReport], measured_on: MeasuredOn | None
) -> list[Observation]:
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
    values = {"mean_ns": (old, new), "median_ns": (old_median, new_median), "of_one_rank": of_one, "longer": longer}
    return [Observation("mean_step_disagrees", values)]


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


def _sorted(values: Iterable[int | str]) -> list[str]:
    return sorted(map(str, values))
