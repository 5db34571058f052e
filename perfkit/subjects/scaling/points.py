"""The points of a series: throughput, speedup and efficiency, each with its interval (metrics.md section 7)."""

from collections.abc import Sequence

from perfkit.base.statistics.bootstrap import Floats
from perfkit.engine.runs.manifest_checks import shared_cores
from perfkit.records.common import MeasuredOn
from perfkit.records.run import RunReport
from perfkit.records.scaling import Estimate, Factors, ScalingPart, ScalingPoint
from perfkit.subjects.scaling.efficiency_loss import Parts, computation, factors
from perfkit.subjects.scaling.series import Group
from perfkit.subjects.scaling.shares import parts
from perfkit.subjects.scaling.step_time import StepTimeSample, estimate, ratio, replicas, sample, to_record


def points(group: Group, measured_on: MeasuredOn) -> list[ScalingPoint]:
    """Return the points of `group`; its smallest world size is the reference."""
    samples = {size: sample(runs, measured_on, stream=size) for size, runs in group.points.items()}
    by_factor, by_part = factors(group), parts(group)
    reference = samples[min(samples)]
    return [
        _point(group, step_time, reference, by_factor[size], by_part.get(size, []))
        for size, step_time in samples.items()
    ]


def _point(
    group: Group,
    step_time: StepTimeSample,
    reference: StepTimeSample,
    by_factor: Parts,
    by_part: list[ScalingPart],
) -> ScalingPoint:
    run = step_time.runs[0]
    size, least = run.world_size, reference.runs[0].world_size
    # Ratio of step times. With weak scaling, a step of p ranks does p / p_ref times the work.
    faster, draws = ratio(reference, step_time)
    work = 1.0 if group.kind == "strong" else size / least
    per_rank = work * least / size
    return ScalingPoint(
        world_size=size,
        nodes=max(1, len(run.hosts)),
        batch_size=group.batch_size // replicas(run) if group.kind == "strong" else group.batch_size,
        threads=threads(step_time.runs),
        oversubscribed=shared_cores(run.hosts),
        step_time=to_record(step_time),
        speedup=_scaled(faster, draws, work),
        efficiency=_scaled(faster, draws, per_rank),
        karp_flatt=_karp_flatt(faster, draws, size / least) if group.kind == "strong" and size > least else None,
        factors=by_factor if isinstance(by_factor, Factors) else None,
        factors_reason=None if isinstance(by_factor, Factors) else by_factor,
        parts=by_part,
        computation_ns=computation(step_time.runs, stream=size),
    )


def _scaled(value: float, draws: Floats | None, factor: float) -> Estimate:
    return estimate(value * factor, None if draws is None else draws * factor)


def _karp_flatt(speedup: float, draws: Floats | None, ranks: float) -> Estimate:
    """Return the experimentally determined serial fraction, (1/S - 1/p) / (1 - 1/p), p relative to the reference."""

    def fraction(inverse: float) -> float:
        return (inverse - 1 / ranks) / (1 - 1 / ranks)

    return estimate(fraction(1 / speedup), None if draws is None else (1 / draws - 1 / ranks) / (1 - 1 / ranks))


def threads(runs: Sequence[RunReport]) -> int | None:
    """Return the CPU threads per rank; None if ranks differ or it is unknown."""
    counts = {(host.threads, host.ranks) for run in runs for host in run.hosts}
    each = {threads // ranks for threads, ranks in counts if ranks and threads % ranks == 0}
    return each.pop() if len(each) == 1 and all(threads % ranks == 0 for threads, ranks in counts) else None
