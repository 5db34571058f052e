"""Summarise several runs: scaling series, and comparisons of options and strategies."""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from perfkit.errors import UsageError
from perfkit.options.identity import differing, short_name
from perfkit.records.aggregate import common_kind, steps_ns
from perfkit.records.common import MeasuredOn
from perfkit.records.facts import Statement, statement
from perfkit.records.run import RunReport
from perfkit.records.scaling import FailedPoint, MultiRunSummary, ScalingPoint, ScalingSeries
from perfkit.records.sweep import ScalingKind
from perfkit.subjects.scaling.efficiency_loss import efficiency_losses
from perfkit.subjects.scaling.forecast import forecasts
from perfkit.subjects.scaling.laws import Observations, fits
from perfkit.subjects.scaling.option_comparison import option_comparisons
from perfkit.subjects.scaling.points import points
from perfkit.subjects.scaling.series import Group, failure_reason, groups, measurable, runs_of
from perfkit.subjects.scaling.shares import PLAUSIBLE_EFFICIENCY, answer, is_known
from perfkit.subjects.scaling.strategies import strategy_comparisons


def scaling(runs: Sequence[RunReport], by: Sequence[str] = (), forecast: Sequence[int] = ()) -> MultiRunSummary | None:
    """Return the scaling series, and what runs of one size show about options and strategies; None if there is nothing.

    Args:
        runs: reports of all runs.
        by: options to compare runs by; input sources are always compared if there are several.
        forecast: world sizes to forecast.

    Raises:
        UsageError: no runs differ only in an option of `by`, or there is no series to forecast.
    """
    measured_groups = [group for group in groups(runs) if measurable(group)]
    varied = differing([group.setting for group in measured_groups], but=("workload",))
    series = [
        _series(group, name, varied, forecast)
        for group, name in zip(measured_groups, _names(measured_groups, varied), strict=True)
    ]
    series.sort(key=lambda one: not is_known(one.points))
    if forecast and not series:
        raise UsageError(
            "--forecast: no runs differ only in world size (and batch size), so there is no series to forecast"
        )
    comparisons = option_comparisons(runs, by)
    strategies = strategy_comparisons(runs)
    if not (series or comparisons or strategies):
        return None
    return MultiRunSummary(series=series, option_comparisons=comparisons, strategy_comparisons=strategies)


def _names(measured_groups: list[Group], varied: list[str]) -> list[str]:
    """Return one name per series: workload, kind, and the options in which it differs from the others."""
    plain = [_name(group, varied) for group in measured_groups]
    counts = Counter(plain)
    return [
        f"{name}, batch {group.batch_size}" if counts[name] > 1 else name
        for name, group in zip(plain, measured_groups, strict=True)
    ]


def _name(group: Group, varied: list[str]) -> str:
    parts = [short_name(name, group.setting[name]) for name in varied if name in group.setting]
    return ", ".join([f"{group.setting['workload']} {group.kind}", *parts])


def _series(group: Group, name: str, varied: list[str], forecast: Sequence[int]) -> ScalingSeries:
    measured_on = common_kind(runs_of(group)) or "recorded"
    measured = points(group, measured_on)
    observed = _observations(group, measured, measured_on)
    return ScalingSeries(
        name=name,
        sentence=answer(group.kind, measured),
        kind=group.kind,
        workload=group.setting["workload"],
        varies={option: group.setting[option] for option in varied if option in group.setting},
        batch_size=group.batch_size,
        points=measured,
        lost=efficiency_losses(measured),
        fits=fits(group.kind, measured, observed),
        forecasts=forecasts(group, measured, observed, forecast),
        failed=[
            FailedPoint(run=run.run, world_size=run.world_size, reason=failure_reason(run)) for run in group.failed
        ],
        notes=list(_notes(group.kind, measured, runs_of(group))),
    )


def _observations(group: Group, measured: Sequence[ScalingPoint], measured_on: MeasuredOn) -> Observations:
    """Return one observation per run, without oversubscribed points."""
    rows = [
        (point.world_size, np.mean(steps_ns(run, measured_on)), point.batch_size)
        for point in measured
        if point.oversubscribed is None
        for run in group.points[point.world_size]
    ]
    ranks, step_ns, batch = (np.array(column, np.float64) for column in zip(*rows, strict=True)) if rows else _NONE
    return Observations(ranks, step_ns, ranks * batch * 1e9 / step_ns)


_NONE = (np.zeros(0), np.zeros(0), np.zeros(0))


def _notes(kind: ScalingKind, measured: Sequence[ScalingPoint], runs: Sequence[RunReport]) -> Iterator[Statement]:
    inferred = {run.batch_size_from for run in runs} - {"told", None}
    if inferred:
        yield statement("samples_inferred", sources=sorted(filter(None, inferred)))
    for point in measured:
        if point.oversubscribed:
            yield statement("cores_shared", ranks=point.world_size, shared=point.oversubscribed)
    threads = {point.world_size: point.threads for point in measured if point.threads is not None}
    if len(set(threads.values())) > 1:
        yield statement("threads_differ", threads=threads)
    if any(point.step_time.measured_on == "recorded" for point in measured):
        yield statement("recorded_times")
    above = [point.world_size for point in measured if point.efficiency.value > PLAUSIBLE_EFFICIENCY]
    if above:
        reference = measured[0].world_size
        yield statement("implausible", most=PLAUSIBLE_EFFICIENCY, sizes=above, kind=kind, reference=reference)
    once = [point.world_size for point in measured if point.step_time.resampled != "runs"]
    if once:
        yield statement("few_repeats", sizes=once)
