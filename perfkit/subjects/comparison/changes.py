"""Compare two sets of runs, metric by metric.

A change is significant if the bootstrap interval of the ratio, with whole runs resampled, excludes 1. With fewer than
three runs on a side significance is undecided: the steps of one run share its disturbances, so an interval over steps
is shown and marked as such. Then the caller may state how much runs vary, and a larger change is significant.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median
from typing import Any, Final, NamedTuple, TypeVar, get_args

from perfkit.base.statistics.bootstrap import FEWEST_RUNS, FEWEST_STEPS, means, ratio_interval
from perfkit.options.identity import companions, format_option, performance_options
from perfkit.records.aggregate import disagree, samples_per_step
from perfkit.records.common import MeasuredOn, Observation
from perfkit.records.comparison import Change, Difference, DifferenceKind, MetricKind
from perfkit.records.facts import statement
from perfkit.records.run import RunReport
from perfkit.records.scaling import Resampling
from perfkit.subjects.comparison.metrics import PROFILED_STEP, STEP_TIME, Metric, MetricName, metrics

_KINDS: Final[tuple[MetricKind, ...]] = get_args(MetricKind)


class Resampled(NamedTuple):
    """A bootstrap interval and what was resampled."""

    interval: tuple[float, float]
    unit: Resampling


def changes(
    before: Sequence[RunReport],
    after: Sequence[RunReport],
    measured_on: MeasuredOn | None = None,
    assumed_noise: float | None = None,
) -> list[Change]:
    """Return every metric of either side, before and after.

    Args:
        before: runs of one configuration.
        after: the runs to compare with them.
        measured_on: as in `metrics`.
        assumed_noise: relative change up to which a change is noise, where there are too few runs to measure it.
    """
    assumed = assumed_noise if few_runs(before, after) else None
    sides = ([metrics(run, measured_on) for run in before], [metrics(run, measured_on) for run in after])
    names = dict.fromkeys(name for side in sides for run in side for name in run)
    rows = []
    for name in names:
        old, new = ([run[name] for run in side if name in run] for side in sides)
        rows.append(_change(name, old, new, assumed))
    return sorted(rows, key=_order)


def few_runs(before: Sequence[RunReport], after: Sequence[RunReport]) -> bool:
    """Return whether there are too few runs to show how much runs vary."""
    return min(len(before), len(after)) < FEWEST_RUNS


def _order(change: Change) -> tuple[int, float]:
    ranked = change.kind in ("collective", "operator")
    return _KINDS.index(change.kind), -abs((change.after or 0) - (change.before or 0)) if ranked else 0


def _change(name: MetricName, before: list[Metric], after: list[Metric], assumed_noise: float | None) -> Change:
    old, new = _value(before), _value(after)
    ratio = new / old if old and new is not None else None
    resampled = _resample(before, after) if old and new else None
    return Change(
        kind=name.kind,
        name=statement("collective", operator=name.name, **name.calls._asdict()) if name.calls else name.name,
        unit=(before or after)[0].unit,
        before=old,
        after=new,
        ratio=ratio,
        interval=resampled and resampled.interval,
        resampled=resampled and resampled.unit,
        significant=_is_significant(ratio, resampled, assumed_noise),
    )


def _is_significant(ratio: float | None, resampled: Resampled | None, assumed_noise: float | None) -> bool | None:
    if resampled is not None and resampled.unit == "runs":
        return not resampled.interval[0] <= 1 <= resampled.interval[1]
    return abs(ratio - 1) > assumed_noise if assumed_noise is not None and ratio is not None else None


def _value(side: list[Metric]) -> float | None:
    return median(measure.value for measure in side) if side else None


def _resample(before: list[Metric], after: list[Metric]) -> Resampled | None:
    if min(len(before), len(after)) >= FEWEST_RUNS:
        old, new = ([measure.value for measure in side] for side in (before, after))
        return _resampled(ratio_interval(old, new), "runs")
    if len(before) == len(after) == 1 and min(len(before[0].samples), len(after[0].samples)) >= FEWEST_STEPS:
        return _resampled(ratio_interval(before[0].samples, after[0].samples, means), "steps")
    return None


def _resampled(interval: tuple[float, float] | None, unit: Resampling) -> Resampled | None:
    return interval and Resampled(interval, unit)


def disagreement(changes: Sequence[Change]) -> list[Observation]:
    """Return a finding if steps with and without the profiler changed in opposite directions."""
    of_run = {change.name: change for change in changes if change.kind == "run"}
    plain, profiled = of_run.get(STEP_TIME.name), of_run.get(PROFILED_STEP.name)
    if plain is None or profiled is None or not disagree(plain.interval, profiled.interval):
        return []
    return [Observation("profiled_step_disagrees", {"plain": plain.ratio, "profiled": profiled.ratio})]


# ---- whether the two are comparable --------------------------------------------------------------------------------


def findings(
    before: Sequence[RunReport], after: Sequence[RunReport], assumed_noise: float | None = None
) -> list[Observation]:
    """Return the findings that limit the trust in the comparison."""
    collected = []
    if few_runs(before, after):
        counts = {"before": len(before), "after": len(after), "fewest": FEWEST_RUNS}
        collected.append(Observation("too_few_repeats", {**counts, "assumed_noise": assumed_noise}))
    for side, runs in (("before", before), ("after", after)):
        if mixed := _differing(runs):
            collected.append(Observation("mixed_configurations", {"side": side, "options": mixed}))
    found = differences(before, after)
    sides = {kind: {one.name: [one.before, one.after] for one in found if one.kind == kind} for kind in _REPORTED}
    if sides["option"]:
        options = {name: [*old, *new] for name, (old, new) in sides["option"].items()}
        collected.append(Observation("configurations_differ", {"options": options}))
    if sides["device"]:
        collected.append(Observation("devices_differ", {"devices": sides["device"]["device"]}))
    if sides["version"]:
        collected.append(Observation("versions_differ", {"versions": sides["version"]}))
    return collected


_REPORTED: Final[tuple[DifferenceKind, ...]] = ("option", "device", "version")


def differences(before: Sequence[RunReport], after: Sequence[RunReport]) -> list[Difference]:
    """Return what is not the same on both sides, besides what was measured; a side may be of several values."""
    options = _differing([before[0], after[0]])
    found = [Difference(kind="option", name=name, before=[old], after=[new]) for name, (old, new) in options.items()]
    found.extend(_environment(before, after))
    return found


def _environment(before: Sequence[RunReport], after: Sequence[RunReport]) -> Iterator[Difference]:
    """Yield differences between the runs, within a side or between sides; unknown values differ from nothing."""
    names = sorted({name for run in (*before, *after) for name in run.versions})
    values: list[tuple[DifferenceKind, str, Callable[[RunReport], str | None]]] = [
        ("commit", "commit", lambda run: run.commit),
        ("device", "device", lambda run: " and ".join(run.device_names)),
        *(("version", name, _version(name)) for name in names),
    ]
    for kind, name, value in values:
        old, new = ({known for run in side if (known := value(run))} for side in (before, after))
        if old and new and len(old | new) > 1:
            yield Difference(kind=kind, name=name, before=sorted(old), after=sorted(new))


def _version(name: str) -> Callable[[RunReport], str | None]:
    return lambda run: run.versions.get(name)


def _differing(runs: Sequence[RunReport]) -> dict[str, list[str]]:
    """Return the options in which the runs differ, with their values."""
    known = [settings(run) for run in runs]
    names = sorted({name for one in known for name in one})
    values = {name: list(dict.fromkeys((format_option(one.get(name)) or "none") for one in known)) for name in names}
    differing = [name for name in names if len(values[name]) > 1]
    # An option of HDF5, for example, has no value with another source: that the source differs is the difference.
    implied = {companion for name in differing for companion in companions(name, known)}
    return {name: values[name] for name in differing if name not in implied}


def settings(run: RunReport) -> dict[str, Any]:
    """Return what runs of one configuration share: workload, ranks and every option that affects performance."""
    return {"workload": run.workload, "ranks": run.world_size} | performance_options(run)


# ---- whether step times tell which is faster -------------------------------------------------------------------------


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


def _sorted(values: Iterable[int | str]) -> list[str]:
    return sorted(map(str, values))
