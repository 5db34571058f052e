"""The step time of repeats of one configuration, with its interval (metrics.md section 7)."""

from collections.abc import Sequence
from statistics import median
from typing import Literal, NamedTuple

import numpy as np

from perfkit.schema.run import RunReport
from perfkit.schema.scaling import Estimate, Resampling, StepTimeEstimate
from perfkit.stats.bootstrap import DRAWS, FEWEST_RUNS, FEWEST_STEPS, Floats, generator, interval, medians

MeasuredOn = Literal["plain", "recorded"]


class StepTimeSample(NamedTuple):
    """The step time of repeats."""

    runs: Sequence[RunReport]
    measured_on: MeasuredOn
    by_run_ns: list[float]
    """Median over steps, of each run."""
    draws: Floats | None
    """Of the figure, for intervals of what is made of it; None where there is too little to resample."""
    resampled: Resampling | None

    @property
    def value_ns(self) -> float:
        """The figure itself."""
        return median(self.by_run_ns)


def steps_ns(run: RunReport, measured_on: MeasuredOn) -> list[int]:
    """Return the largest wall time over ranks of every step of one kind; none where the run did not complete."""
    if run.step_times is None or run.state != "completed":
        return []
    walls = run.step_times.plain_ns if measured_on == "plain" else run.step_times.recorded_ns
    return [max(1, wall) for wall in walls]  # a clock that stands still divides nothing


def common_kind(runs: Sequence[RunReport]) -> MeasuredOn | None:
    """Return the kind of steps that all runs have: the profiler's cost must not pass for a difference between them."""
    kinds: tuple[MeasuredOn, ...] = ("plain", "recorded")
    return next((kind for kind in kinds if all(steps_ns(run, kind) for run in runs)), None)


def sample(runs: Sequence[RunReport], measured_on: MeasuredOn, stream: int) -> StepTimeSample:
    """Return the step time of repeats; `stream` tells its random numbers from those of other figures."""
    steps = [steps_ns(run, measured_on) for run in runs]
    by_run: list[float] = [median(walls) for walls in steps]
    draw = generator(stream)
    if len(runs) >= FEWEST_RUNS:
        return StepTimeSample(runs, measured_on, by_run, medians(by_run, draw), "runs")
    if min(map(len, steps)) < FEWEST_STEPS:
        return StepTimeSample(runs, measured_on, by_run, None, None)
    draws: Floats = np.median([medians(walls, draw) for walls in steps], axis=0)
    return StepTimeSample(runs, measured_on, by_run, draws, "steps")


def estimate(value: float, draws: Floats | None) -> Estimate:
    """Return a figure with the interval of its draws."""
    return Estimate(value=value, interval=None if draws is None else interval(draws))


def ratio(above: StepTimeSample, below: StepTimeSample) -> tuple[float, Floats | None]:
    """Return the ratio of two step times, and its draws."""
    value = above.value_ns / below.value_ns
    if above is below:
        return 1.0, np.ones(DRAWS)
    if above.draws is None or below.draws is None:
        return value, None
    ratios: Floats = above.draws / below.draws
    return value, ratios


def to_record(found: StepTimeSample) -> StepTimeEstimate:
    """Return the record of a step time."""
    run = found.runs[0]
    step_ns, draws = found.value_ns, found.draws
    samples = None if run.batch_size is None else run.batch_size * run.world_size * 1e9
    tokens = run.throughput and run.throughput.tokens_per_s
    return StepTimeEstimate(
        runs=[run.run for run in found.runs],
        measured_on=found.measured_on,
        resampled=found.resampled,
        step_ns=estimate(step_ns, draws),
        samples_per_s=None
        if samples is None
        else estimate(samples / step_ns, None if draws is None else samples / draws),
        tokens_per_s=tokens * run.throughput.step_ns / step_ns if tokens and run.throughput else None,
    )
