"""Insight rules for pipelines: bubbles of the schedule, bubbles of transfers, and a stage that is too heavy."""

from collections.abc import Iterator
from statistics import fmean
from typing import Final

from perfkit.analysis.per_run.bubble_verdict import late_besides_stages, without_late
from perfkit.insights.dimension_advice import gathers_parameters, reduces_gradients
from perfkit.insights.rule import InsightDraft, Rule
from perfkit.insights.run_context import RunContext, stragglers_of
from perfkit.schema.per_run.pipeline import HeavyStage, Pipeline, PipelineRank, heavy_clause, heavy_in_all, heavy_names
from perfkit.util.formatting import duration, ranges, whole_percent

_MIN_SHARE: Final = 0.1
"""Smallest bubble, as a share of the step, that is reported."""
_MAJORITY: Final = 0.5
"""Least share of the bubble that must follow from the schedule."""
_MIN_GAIN: Final = 0.02
"""Smallest gain from equal stages, as a share of the step, that is reported."""
_TARGET: Final = 0.1
"""Bubble that a number of micro-batches is proposed for."""
_MOST_TIMES: Final = 4
"""Largest multiple of micro-batches that is proposed."""
_FORMULA_STAGES: Final = {"gpipe": 1, "1f1b": 1, "interleaved": 2}
"""Schedules whose ideal bubble the formula of metrics.md section 13 gives, with their stages per rank."""


def _pipelines(context: RunContext) -> list[Pipeline]:
    """Return the pipelines of known ideal bubble, without waiting for late ranks, which other advice is about.

    Those that have no late rank come first: in the others the ideal bubble is that of longer micro-batches.
    """
    run = context.run
    late = late_besides_stages(run.pipelines, run.cross_rank)
    gain_ns = run.cross_rank.stragglers_gain_ns if run.cross_rank else 0
    return [one for one in without_late(run.pipelines, late, gain_ns) if one.ideal_share is not None]


def _bubble(context: RunContext) -> InsightDraft | None:
    found = _pipelines(context)
    if not found:
        return None
    pipeline = found[0]
    ideal, share = pipeline.ideal_share or 0.0, pipeline.bubble_share
    if share < _MIN_SHARE or ideal < _MAJORITY * share:
        return None
    ranks, batches = len(pipeline.ranks), pipeline.micro_batches
    by_schedule = whole_percent(min(ideal / share, 1))
    sentence = (
        f"the bubble of the pipeline takes {whole_percent(share)} of the step, {by_schedule} of it because of the "
        f"schedule alone, with {batches} micro-batch{'es' if batches != 1 else ''} on {ranks} ranks"
    )
    evidence = {"bubble_share": share, "ideal_share": ideal, "micro_batches": float(batches), "ranks": float(ranks)}
    return InsightDraft(sentence, evidence, _more_micro_batches(context, pipeline), context.step_ns * min(ideal, share))


def _transfers(context: RunContext) -> InsightDraft | None:
    found = _pipelines(context)
    if not found:
        return None
    pipeline = found[0]
    wall_ns, bubble_ns = (sum(getattr(row, field) for row in pipeline.ranks) for field in ("wall_ns", "bubble_ns"))
    late = late_besides_stages(context.run.pipelines, context.run.cross_rank)
    lags_ns = [row.lag_ns for row in stragglers_of(context.run) if row.rank in late]
    # What a rank waits for late ranks, as well in other pipelines, is no price of messages either.
    delayed_ns = pipeline.steps * max(lags_ns, default=0)
    rest_ns = sum(
        max(0, (row.communication_ns or 0) - max(late_ns, delayed_ns))
        for row, late_ns in _others_longer_ns(context, pipeline)
    )
    if pipeline.bubble_share < _MIN_SHARE or rest_ns <= _MAJORITY * bubble_ns:
        return None
    sentence = (
        f"the bubble of the pipeline takes {whole_percent(pipeline.bubble_share)} of the step, "
        f"{whole_percent(min(rest_ns / bubble_ns, 1))} of it neither because of the schedule nor of unequal stages: "
        f"transfers, {_data_parallel(context)}and what ranks do between micro-batches"
    )
    evidence = {"bubble_share": pipeline.bubble_share, "communication_share": rest_ns / wall_ns}
    saving_ns = context.step_ns * min(rest_ns / wall_ns, pipeline.bubble_share)
    return InsightDraft(sentence, evidence, _fewer_messages(context, pipeline), saving_ns)


def _others_longer_ns(context: RunContext, pipeline: Pipeline) -> Iterator[tuple[PipelineRank, float]]:
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


def _data_parallel(context: RunContext) -> str:
    """Return what a stage may also wait for: gradients or parameters that another one exchanges within its actions."""
    found = any(reduces_gradients(context, one) or gathers_parameters(context, one) for one in context.dimensions())
    return "communication of data-parallel ranks, " if found else ""


def _fewer_messages(context: RunContext, pipeline: Pipeline) -> str:
    """Return how to send fewer messages, with what the schedule idles then: it may be more than they cost."""
    ranks, batches, own = len(pipeline.ranks), pipeline.micro_batches, _is_own(pipeline)
    fewer, idles = batches // 2, "with equal stages the schedule then idles"
    if pipeline.stages > ranks:
        use = "--pp-schedule 1f1b" if own else "1F1B with one stage per rank"
        share = whole_percent(_ideal(ranks, 1, batches))
        return f"try {use}, which sends fewer messages per micro-batch; {idles} {share} of the pipeline's time"
    known = _FORMULA_STAGES.get(pipeline.schedule or "") == 1
    if known and batches % 2 == 0 and fewer >= ranks and not context.is_memory_full:
        now, then = (whole_percent(_ideal(ranks, 1, count)) for count in (batches, fewer))
        use = f"--micro-batches {fewer}" if own else f"{fewer} micro-batches per step"
        share = f"{then} of the pipeline's time instead of {now}"
        return f"try {use}: half as many messages, each twice as large; {idles} {share}"
    return "perfkit merge draws micro-batches and bubbles of all stages: see what lies between them"


def _more_micro_batches(context: RunContext, pipeline: Pipeline) -> str:
    ranks, batches = len(pipeline.ranks), pipeline.micro_batches
    stages = _FORMULA_STAGES.get(pipeline.schedule or "", 0)
    own = _is_own(pipeline)
    if pipeline.schedule is None:
        return "use more micro-batches per step"
    if pipeline.schedule == "none":
        larger = _larger_batch(context, 2 * ranks)
        use = f"--pp-schedule 1f1b --micro-batches {2 * ranks}" if own else f"1F1B with {2 * ranks} micro-batches"
        use += larger if own else ""
        return f"use {use} or more: the stages then compute at the same time"
    if stages * ranks != pipeline.stages:
        return "use more --micro-batches" if own else "use more micro-batches per step"
    times = next((n for n in range(2, _MOST_TIMES) if _ideal(ranks, stages, n * batches) <= _TARGET), _MOST_TIMES)
    more = times * batches
    now, then = (whole_percent(_ideal(ranks, stages, count)) for count in (batches, more))
    use = f"--micro-batches {more}{_larger_batch(context, more)}" if own else f"{more} micro-batches per step"
    advice = (
        f"use {use}: with equal stages the schedule then idles {then} of the pipeline's time "
        f"instead of {now}, if smaller micro-batches compute as efficiently"
    )
    two_stages = stages == 1 and all((row.layers or 0) >= 2 for row in pipeline.stage_times) and batches % ranks == 0
    if two_stages and ranks == context.run.world_size:
        interleaved = whole_percent(_ideal(ranks, 2, batches))
        advice += f"; or --pp-schedule interleaved, with two stages per rank: {interleaved}"
    return advice


def _larger_batch(context: RunContext, micro_batches: int) -> str:
    """Return what else a number of micro-batches needs: they divide the batch."""
    samples = context.run.batch_size
    divides = samples is not None and samples % micro_batches == 0
    return "" if divides else f" and a --batch-size that is a multiple of {micro_batches}"


def _is_own(pipeline: Pipeline) -> bool:
    """Return whether it is a pipeline of perfkit's workloads, which record their layers: others lack its options."""
    return any(row.layers is not None for row in pipeline.stage_times)


def _ideal(ranks: int, stages: int, batches: int) -> float:
    return (ranks - 1) / (stages * batches + ranks - 1)


def _heavy_stage(context: RunContext) -> InsightDraft | None:
    # A stage that is heavy in one of several pipelines only is on a slow rank: moving layers does not mend that.
    heavy = heavy_in_all(context.run.pipelines)
    if heavy is None or context.share(heavy.gain_ns) < _MIN_GAIN:
        return None
    ranks = ranges({one.rank for one in heavy.all})
    sentence = (
        f"{heavy_clause(heavy)} per micro-batch than the median of the others (rank{'s' if heavy.also else ''} "
        f"{ranks}): with equal stages a step would be {duration(heavy.gain_ns)} shorter"
    )
    evidence = {"excess": heavy.excess, "stage": float(heavy.stage), "gain_ns": heavy.gain_ns}
    if heavy.layer_move is not None:
        evidence["move_gain_ns"] = heavy.layer_move.gain_ns
    return InsightDraft(sentence, evidence, _balance(heavy), heavy.gain_ns)


def _balance(heavy: HeavyStage) -> str:
    move = heavy.layer_move
    if move is not None:
        between = ", or to the stages between" if abs(heavy.stage - move.to_stage) > 1 else ""
        return (
            f"give a layer of stage {heavy.stage} to stage {move.to_stage}{between}: by replay a step is then "
            f"{duration(move.gain_ns)} shorter"
        )
    several = "one layer of one stage" if heavy.also else "a whole layer"
    return f"move work from {heavy_names(heavy)} to the other stages: moving {several} is not known to help"


BUBBLE: Final = Rule("pipeline_bubble", _bubble)
TRANSFERS: Final = Rule("pipeline_transfers", _transfers)
HEAVY_STAGE: Final = Rule("heavy_stage", _heavy_stage)
