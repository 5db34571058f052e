"""Metrics of a run that can be compared with another run's.

Times are per step and rank, so that a run with twice the steps is not twice as slow.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Final, Literal, NamedTuple

from perfkit.records.aggregate import add_collectives, add_operators, steps_ns, traced_step_ns
from perfkit.records.common import CATEGORIES, MeasuredOn
from perfkit.records.comparison import MetricKind
from perfkit.records.per_rank.idle import CAUSES
from perfkit.records.rank import StepBreakdown
from perfkit.records.run import FACTORS, RunReport


class Metric(NamedTuple):
    """One metric of one run."""

    value: float
    unit: Literal["ns", "1/s", "ratio"]
    samples: list[float]
    """The value of each step, in order, with `value` as their mean; empty if known for the whole run only."""


class Calls(NamedTuple):
    """What identifies the calls of a collective across runs; their group's name may change with every run."""

    size_bytes: float | None
    """With three significant digits."""
    dtype: str | None
    group_size: int | None


class MetricName(NamedTuple):
    """Name of a metric, the same in every run."""

    kind: MetricKind
    name: str
    calls: Calls | None = None
    """Of a collective."""


STEP_TIME: Final = MetricName("run", "step_time")
PROFILED_STEP: Final = MetricName("run", "profiled_step")


def metrics(run: RunReport, measured_on: MeasuredOn | None = None) -> dict[MetricName, Metric]:
    """Return every comparable metric of `run`; without traces only step time and rates.

    Args:
        run: a run.
        measured_on: the steps, by the run's own clock, that all compared runs have (see `common_kind`). With `plain`
            these are `step_time`, and the steps in the traces are `profiled_step`; else those are `step_time`.
    """
    return dict(
        [
            *_steps(run, measured_on),
            *_categories(run),
            *_idle(run),
            *_rates(run, measured_on),
            *_loading(run),
            *_efficiency(run),
            *_collectives(run),
            *_operators(run),
        ]
    )


def category_share(run: RunReport, category: str) -> float | None:
    """Return the exposed share of a category over all ranks and steps (metrics.md section 4); None without steps."""
    steps = [step for rank in run.ranks for step in rank.steps]
    wall_ns = sum(step.wall_ns for step in steps)
    return sum(getattr(step.exposed_ns, category) for step in steps) / wall_ns if wall_ns else None


def _steps(run: RunReport, measured_on: MeasuredOn | None) -> Iterator[tuple[MetricName, Metric]]:
    profiled = list(traced_step_ns(run.ranks).values())
    if measured_on == "plain":
        yield STEP_TIME, _sampled(steps_ns(run, "plain"))
    if profiled:
        # What steps wait for ranks that began to record later is no part of the step time.
        part = run.step_time.profiled_ns / fmean(profiled) if run.step_time else 1.0
        yield (PROFILED_STEP if measured_on == "plain" else STEP_TIME), _sampled([ns * part for ns in profiled])


def _categories(run: RunReport) -> Iterator[tuple[MetricName, Metric]]:
    by_step = _by_step(run)
    for category in CATEGORIES if by_step else ():
        samples = [fmean(getattr(step.exposed_ns, category) for step in ranks) for ranks in by_step]
        yield MetricName("category", category), _sampled(samples)


def _idle(run: RunReport) -> Iterator[tuple[MetricName, Metric]]:
    """Yield the idle time of each cause that occurs, mean over ranks."""
    by_step = _by_step(run)
    for cause in CAUSES:
        samples = [fmean(getattr(step.idle_ns, cause) for step in ranks) for ranks in by_step]
        if any(samples):
            yield MetricName("idle", f"idle.{cause}"), _sampled(samples)


def _by_step(run: RunReport) -> list[list[StepBreakdown]]:
    """Return the ranks' steps of each number."""
    by_step: dict[int | None, list[StepBreakdown]] = defaultdict(list)
    for rank in run.ranks:
        for step in rank.steps:
            by_step[step.step].append(step)
    return list(by_step.values())


def _sampled(samples: Sequence[float]) -> Metric:
    return Metric(fmean(samples), "ns", list(samples))


def _rates(run: RunReport, measured_on: MeasuredOn | None) -> Iterator[tuple[MetricName, Metric]]:
    rates = run.throughput
    if rates is None:
        return
    # Each run's rates are of its own steps without the profiler if it has any, which others may lack.
    walls = steps_ns(run, measured_on) if measured_on else []
    faster = rates.step_ns / fmean(walls) if walls else 1.0
    yield MetricName("run", "samples_per_s"), Metric(rates.samples_per_s * faster, "1/s", [])
    if rates.tokens_per_s is not None:
        yield MetricName("run", "tokens_per_s"), Metric(rates.tokens_per_s * faster, "1/s", [])
    if rates.mfu is not None:
        yield MetricName("run", "mfu"), Metric(rates.mfu * faster, "ratio", [])


def _loading(run: RunReport) -> Iterator[tuple[MetricName, Metric]]:
    if run.data_loading is not None:
        yield MetricName("loading", "load.median"), Metric(run.data_loading.median_ns, "ns", [])
        yield MetricName("loading", "load.max"), Metric(run.data_loading.max_ns, "ns", [])


def _efficiency(run: RunReport) -> Iterator[tuple[MetricName, Metric]]:
    for factor in ("parallel", *FACTORS, "au") if run.efficiency else ():
        value = getattr(run.efficiency, factor)
        if value is not None:
            yield MetricName("efficiency", f"efficiency.{factor}"), Metric(value, "ratio", [])


def _collectives(run: RunReport) -> Iterator[tuple[MetricName, Metric]]:
    rows = add_collectives(row for rank in run.ranks for row in rank.collectives)
    times: dict[MetricName, int] = defaultdict(int)
    for row in rows:
        rounded = None if row.bytes is None else float(f"{row.bytes:.3g}")
        times[MetricName("collective", row.operator, Calls(rounded, row.dtype, row.group_size))] += row.exposed_ns
    yield from _per_step(times, run)


def _operators(run: RunReport) -> Iterator[tuple[MetricName, Metric]]:
    rows = add_operators(row for rank in run.ranks for row in rank.operators)
    times: dict[MetricName, int] = defaultdict(int)
    for row in rows:
        times[MetricName("operator", row.name)] += row.total_ns
    yield from _per_step(times, run)


def _per_step(times: dict[MetricName, int], run: RunReport) -> Iterator[tuple[MetricName, Metric]]:
    steps = sum(len(rank.steps) for rank in run.ranks)
    for name, total_ns in times.items() if steps else ():
        yield name, Metric(total_ns / steps, "ns", [])
