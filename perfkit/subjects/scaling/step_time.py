"""Step time of repeats of one configuration, with its interval (metrics.md section 7)."""

import math
import re
from collections.abc import Sequence
from statistics import fmean, median
from typing import Final, NamedTuple

import numpy as np

from perfkit.base.statistics.bootstrap import (
    DRAWS,
    FEWEST_RUNS,
    FEWEST_STEPS,
    Floats,
    generator,
    interval,
    means,
    medians,
)
from perfkit.records.aggregate import steps_ns
from perfkit.records.common import MeasuredOn
from perfkit.records.run import RunReport
from perfkit.records.scaling import Estimate, Resampling, StepTimeEstimate

_SHARE_SAMPLES: Final = ("pp", "cp", "tp")
"""Dimensions whose ranks share their samples (see `--batch-size`)."""
_PART: Final = re.compile(r"([a-z]+)=(\d{1,9})")


def replicas(run: RunReport) -> int:
    """Return the number; without a mesh, every rank is one."""
    sharing = math.prod(_sizes(run).get(name, 1) for name in _SHARE_SAMPLES)
    return run.world_size // sharing if sharing and run.world_size % sharing == 0 else run.world_size


def mesh_of_a_replica(run: RunReport) -> str:
    """Return the part of the mesh option that does not depend on the number of replicas, such as `pp=2,tp=2`."""
    named = ((name, size) for name, size in _sizes(run).items() if name not in ("dp", "replicate"))
    return ",".join(f"{name}={size}" for name, size in named if size > 1) or "none"


def _sizes(run: RunReport) -> dict[str, int]:
    """Return the sizes that the option gives; its text is that of an untrusted file."""
    mesh = (run.config or {}).get("mesh")
    parts = mesh.split(",")[:16] if isinstance(mesh, str) else []
    found = (_PART.fullmatch(part.strip()) for part in parts)
    return {match[1]: int(match[2]) for match in found if match}


class StepTimeSample(NamedTuple):
    """The step time of repeats, with its bootstrap draws."""

    runs: Sequence[RunReport]
    measured_on: MeasuredOn
    by_run_ns: list[float]
    """Mean over the steps of each run."""
    draws: Floats | None
    """Bootstrap draws of the value, for intervals of anything derived from it; None with too little to resample."""
    resampled: Resampling | None

    @property
    def value_ns(self) -> float:
        """Median over runs."""
        return median(self.by_run_ns)


def sample(runs: Sequence[RunReport], measured_on: MeasuredOn, stream: int) -> StepTimeSample:
    """Return the step time of repeats; `stream` selects independent random numbers for each sample."""
    steps = [steps_ns(run, measured_on) for run in runs]
    by_run: list[float] = [fmean(walls) for walls in steps]
    draw = generator(stream)
    if len(runs) >= FEWEST_RUNS:
        return StepTimeSample(runs, measured_on, by_run, medians(by_run, draw), "runs")
    if min(map(len, steps)) < FEWEST_STEPS:
        return StepTimeSample(runs, measured_on, by_run, None, None)
    draws: Floats = np.median([means(walls, draw) for walls in steps], axis=0)
    return StepTimeSample(runs, measured_on, by_run, draws, "steps")


def estimate(value: float, draws: Floats | None) -> Estimate:
    """Return a value with the interval of its draws."""
    return Estimate(value=value, interval=None if draws is None else interval(draws))


def ratio(above: StepTimeSample, below: StepTimeSample) -> tuple[float, Floats | None]:
    """Return the ratio of two step times and its draws."""
    value = above.value_ns / below.value_ns
    if above is below:
        return 1.0, np.ones(DRAWS)
    if above.draws is None or below.draws is None:
        return value, None
    ratios: Floats = above.draws / below.draws
    return value, ratios


def to_record(sample: StepTimeSample) -> StepTimeEstimate:
    """Return the record of a step time."""
    run = sample.runs[0]
    step_ns, draws = sample.value_ns, sample.draws
    # Ranks may share samples: the run itself knows how many it has trained on.
    samples = None if run.batch_size is None else run.batch_size * replicas(run) * 1e9
    if run.throughput is not None:
        samples = run.throughput.samples_per_s * run.throughput.step_ns
    tokens = run.throughput and run.throughput.tokens_per_s
    return StepTimeEstimate(
        runs=[run.run for run in sample.runs],
        measured_on=sample.measured_on,
        resampled=sample.resampled,
        step_ns=estimate(step_ns, draws),
        samples_per_s=None
        if samples is None
        else estimate(samples / step_ns, None if draws is None else samples / draws),
        tokens_per_s=tokens * run.throughput.step_ns / step_ns if tokens and run.throughput else None,
    )
