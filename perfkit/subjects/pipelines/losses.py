"""What pipelines cost: bubbles of the schedule, bubbles of transfers, and a stage that is too heavy."""

from collections.abc import Iterator
from statistics import fmean
from typing import Final

from perfkit.engine.ledger.bubble import late_besides_stages, without_late
from perfkit.engine.losses.context import MIN_COMMON_SHARE, LossContext, stragglers_of
from perfkit.engine.losses.dimensions import gathers_parameters, reduces_gradients
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.records.aggregate import MAJORITY
from perfkit.records.facts import Fact, Facts, fact
from perfkit.records.per_run.pipeline import HeavyStage, Pipeline, PipelineRank, heavy_in_all

_MIN_GAIN: Final = 0.02
"""Smallest gain from equal stages, as a share of the step, that is reported."""
_TARGET: Final = 0.1
"""Bubble that a number of micro-batches is proposed for."""
_MOST_TIMES: Final = 4
"""Largest multiple of micro-batches that is proposed."""
_FORMULA_STAGES: Final = {"gpipe": 1, "1f1b": 1, "interleaved": 2}
"""Schedules whose ideal bubble the formula of metrics.md section 13 gives, with their stages per rank."""


def _pipeline(context: LossContext) -> Pipeline | None:
    """Return the first pipeline of known ideal bubble, without waiting for late ranks, which other advice is about.

    One without a late rank is preferred: in others the ideal bubble is that of longer micro-batches.
    """
    run = context.run
    late = [row.rank for row in late_besides_stages(run.pipelines, run.cross_rank)]
    gain_ns = (run.cross_rank.stragglers_gain_ns or 0) if run.cross_rank else 0
    return next((one for one in without_late(run.pipelines, late, gain_ns) if one.ideal_share is not None), None)


def pipeline_bubble(context: LossContext) -> Loss | None:
    """The bubble that follows from the schedule."""
    pipeline = _pipeline(context)
    if pipeline is None:
        return None
    ideal, share = pipeline.ideal_share or 0.0, pipeline.bubble_share
    if share < MIN_COMMON_SHARE or ideal < MAJORITY * share:
        return None
    ranks, batches = len(pipeline.ranks), pipeline.micro_batches
    return Loss(
        cause="pipeline_bubble",
        row="bubble",
        ranks=tuple(row.rank for row in pipeline.ranks),
        facts=(fact("bubble_of_schedule", batches=batches, ranks=ranks),),
        evidence={"bubble_share": share, "ideal_share": ideal, "micro_batches": float(batches), "ranks": float(ranks)},
        remedy=tuple(_more_micro_batches(context, pipeline)),
        per_step_ns=context.step_ns * min(ideal, share),
    )


def pipeline_transfers(context: LossContext) -> Loss | None:
    """The bubble that follows from transfers."""
    pipeline = _pipeline(context)
    if pipeline is None:
        return None
    wall_ns, bubble_ns = (sum(getattr(row, field) for row in pipeline.ranks) for field in ("wall_ns", "bubble_ns"))
    is_known = bool(stragglers_of(context.run))
    late = late_besides_stages(context.run.pipelines, context.run.cross_rank) if is_known else []
    lags_ns = [row.lag_ns for row in late]
    # What a rank waits for late ranks, as well in other pipelines, is no price of messages either.
    delayed_ns = pipeline.steps * max(lags_ns, default=0)
    rest_ns = sum(
        max(0, (row.communication_ns or 0) - max(late_ns, delayed_ns))
        for row, late_ns in _others_longer_ns(context, pipeline)
    )
    if pipeline.bubble_share < MIN_COMMON_SHARE or rest_ns <= MAJORITY * bubble_ns:
        return None
    # A stage may also wait for gradients or parameters that another one exchanges within its actions.
    exchanges = any(reduces_gradients(context, one) or gathers_parameters(context, one) for one in context.dimensions())
    return Loss(
        cause="pipeline_transfers",
        row="bubble",
        ranks=tuple(row.rank for row in pipeline.ranks),
        facts=(fact("bubble_of_transfers", exchanges=exchanges),),
        evidence={"bubble_share": pipeline.bubble_share, "communication_share": rest_ns / wall_ns},
        remedy=(_fewer_messages(context, pipeline),),
        per_step_ns=context.step_ns * min(rest_ns / wall_ns, pipeline.bubble_share),
    )


def _others_longer_ns(context: LossContext, pipeline: Pipeline) -> Iterator[tuple[PipelineRank, float]]:
    """Yield each rank with how much longer another's own time outside of its actions is, over the measured steps (ns).

    It may wait so long for a rank that loads data or logs before its first micro-batch, whatever messages cost.
    """
    outside_ns = {}
    for row in pipeline.ranks:
        work_ns = pipeline.steps * _work_ns(pipeline, row)
        steps = [step for rank in context.run.ranks if rank.rank == row.rank for step in rank.steps]
        own_ns = fmean(step.wall_ns - step.exposed_ns.communication for step in steps) if steps else 0.0
        outside_ns[row.rank] = max(0.0, pipeline.steps * own_ns - work_ns)
    most_ns = max(outside_ns.values(), default=0.0)
    for row in pipeline.ranks:
        yield row, most_ns - outside_ns[row.rank]


def _work_ns(pipeline: Pipeline, row: PipelineRank) -> float:
    """Return what a rank computes of all micro-batches in a step."""
    stages = [stage for stage in pipeline.stage_times if stage.rank == row.rank]
    return pipeline.micro_batches * sum(stage.forward_ns + stage.backward_ns for stage in stages)


def _fewer_messages(context: LossContext, pipeline: Pipeline) -> Fact:
    """Return how to send fewer messages, with what the schedule idles then: it may be more than they cost."""
    ranks, batches, own = len(pipeline.ranks), pipeline.micro_batches, _is_own(pipeline)
    fewer = batches // 2
    if pipeline.stages > ranks:
        return fact("one_stage_per_rank", own=own, share=_ideal(ranks, 1, batches))
    known = _FORMULA_STAGES.get(pipeline.schedule or "") == 1
    if known and batches % 2 == 0 and fewer >= ranks and not context.is_memory_full:
        shares = {"now": _ideal(ranks, 1, batches), "then": _ideal(ranks, 1, fewer)}
        return fact("fewer_micro_batches", use=_micro_batches(context, pipeline, fewer, divides=True), **shares)
    return fact("see_bubbles")


def _more_micro_batches(context: LossContext, pipeline: Pipeline) -> Iterator[Fact]:
    ranks, batches = len(pipeline.ranks), pipeline.micro_batches
    stages = _FORMULA_STAGES.get(pipeline.schedule or "", 0)
    own = _is_own(pipeline)
    if pipeline.schedule == "none":
        yield fact("use_1f1b", own=own, use=_micro_batches(context, pipeline, 2 * ranks))
        return
    if pipeline.schedule is None or stages * ranks != pipeline.stages:
        yield fact("more_micro_batches", own=own and pipeline.schedule is not None)
        return
    times = next((n for n in range(2, _MOST_TIMES) if _ideal(ranks, stages, n * batches) <= _TARGET), _MOST_TIMES)
    shares = {"now": _ideal(ranks, stages, batches), "then": _ideal(ranks, stages, times * batches)}
    yield fact("use_micro_batches", use=_micro_batches(context, pipeline, times * batches), **shares)
    two_stages = stages == 1 and all((row.layers or 0) >= 2 for row in pipeline.stage_times) and batches % ranks == 0
    if two_stages and ranks == context.run.world_size:
        yield fact("or_interleaved", share=_ideal(ranks, 2, batches))


def _micro_batches(context: LossContext, pipeline: Pipeline, count: int, *, divides: bool = False) -> Facts:
    """Return how to have a number of micro-batches: they divide the batch."""
    if not _is_own(pipeline):
        return (fact("micro_batches", count=count),)
    samples = context.run.batch_size
    divides = divides or (samples is not None and samples % count == 0)
    return (fact("micro_batches_option", count=count), *(() if divides else (fact("batch_multiple", count=count),)))


def _is_own(pipeline: Pipeline) -> bool:
    """Return whether it is a pipeline of perfkit's workloads, which record their layers: others lack its options."""
    return any(row.layers is not None for row in pipeline.stage_times)


def _ideal(ranks: int, stages: int, batches: int) -> float:
    return (ranks - 1) / (stages * batches + ranks - 1)


def heavy_stage(context: LossContext) -> Loss | None:
    """Stages that take longer than the others."""
    # A stage that is heavy in one of several pipelines only is on a slow rank: moving layers does not mend that.
    heavy = heavy_in_all(context.run.pipelines)
    if heavy is None or context.share(heavy.gain_ns) < _MIN_GAIN:
        return None
    evidence = {"excess": heavy.excess, "stage": float(heavy.stage), "gain_ns": heavy.gain_ns}
    if heavy.layer_move is not None:
        evidence["move_gain_ns"] = heavy.layer_move.gain_ns
    ranks = tuple(sorted({one.rank for one in heavy.all}))
    return Loss(
        cause="heavy_stage",
        row="bubble",
        ranks=ranks,
        facts=(fact("heavy_stages", heavy=heavy), fact("heavy_stage")),
        evidence=evidence,
        remedy=(_balance(heavy),),
        per_step_ns=heavy.gain_ns,
    )


def _balance(heavy: HeavyStage) -> Fact:
    move = heavy.layer_move
    if move is None:
        return fact("move_work", heavy=heavy)
    between = abs(heavy.stage - move.to_stage) > 1
    return fact("move_layer", stage=heavy.stage, to_stage=move.to_stage, between=between, ns=move.gain_ns)


LOSSES: Final[Rules] = {
    "pipeline_bubble": pipeline_bubble,
    "pipeline_transfers": pipeline_transfers,
    "heavy_stage": heavy_stage,
}
