"""Advice on pipelines: more micro-batches, and lighter stages; silent where it would be false."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.engine.losses.context import loss_context
from perfkit.pipeline.losses import Ranked
from perfkit.pipeline.words import insight
from perfkit.records.per_run.pipeline import HeavyStage, LayerMove, Pipeline, PipelineRank, PipelineStage, StageExcess
from perfkit.records.rank import RankReport, StepBreakdown
from perfkit.records.report import Insight
from perfkit.subjects.pipelines.losses import heavy_stage, pipeline_bubble, pipeline_transfers
from perfkit.subjects.ranks.losses import waiting
from tests.support.reports.report_builders import MS, make_dimensions, make_efficiency, make_rank, make_run, make_step


def make_pipeline(bubble: int = 43, ideal: int | None = 40, **changes: Any) -> Pipeline:
    """A pipeline of four ranks with steps of 100 ms."""
    rows = [
        PipelineRank(
            rank=rank,
            stages=[rank],
            wall_ns=200 * MS,
            compute_ns=2 * (100 - bubble) * MS,
            bubble_ns=2 * bubble * MS,
            ideal_ns=None if ideal is None else 2 * ideal * MS,
            imbalance_ns=None if ideal is None else 0,
            communication_ns=None if ideal is None else 2 * (bubble - ideal) * MS,
            other_communication_ns=0,
            other_ns=0,
        )
        for rank in range(4)
    ]
    times = [PipelineStage(stage=rank, rank=rank, layers=1, forward_ns=1e6, backward_ns=2e6) for rank in range(4)]
    made = Pipeline(
        schedule="gpipe", stages=4, micro_batches=4, steps=2, ranks=rows, stage_times=times, heavy=None, reason=None
    )
    return replace(made, **changes)


def evaluate(rule: Any, *pipelines: Pipeline, **changes: Any) -> Insight | None:
    steps = [make_step(number, communication=50 * MS, compute=50 * MS, data_loading=0, overhead=0) for number in (1, 2)]
    ranks = [make_rank(rank, steps) for rank in range(4)]
    fields: dict[str, Any] = {"ranks": ranks, "world_size": 4, "batch_size": 16}
    run = make_run(pipelines=list(pipelines), **(fields | changes))
    context = loss_context(run, None)
    assert context is not None
    loss = rule(context)
    return None if loss is None else insight(Ranked("pipelines", "", run.run, loss, loss.per_step_ns))


def test_a_pipeline_without_a_schedule_gets_one() -> None:
    draft = evaluate(pipeline_bubble, make_pipeline(75, 75, schedule="none", micro_batches=1))
    assert draft is not None
    assert draft.recommendation.startswith("use --pp-schedule 1f1b --micro-batches 8")
    assert "1 micro-batch on 4 ranks" in draft.sentence


def test_a_pipeline_without_a_schedule_may_need_a_larger_batch() -> None:
    draft = evaluate(pipeline_bubble, make_pipeline(75, 75, schedule="none", micro_batches=1), batch_size=4)
    assert draft is not None
    assert draft.recommendation.startswith(
        "use --pp-schedule 1f1b --micro-batches 8 and a --batch-size that is a multiple of 8 or more"
    )


@pytest.mark.parametrize(
    ("schedule", "batches", "stages", "advice"),
    [
        ("none", 1, 4, "use 1F1B with 8 micro-batches per step or more"),
        ("1f1b", 4, 4, "use 16 micro-batches per step: with equal stages, the schedule then idles 16 %"),
        ("interleaved", 4, 12, "use more micro-batches per step"),
    ],
)
def test_other_programs_are_not_told_to_use_options_of_perfkit(
    schedule: str, batches: int, stages: int, advice: str
) -> None:
    given = make_pipeline(75, 75, schedule=schedule, micro_batches=batches, stages=stages)
    draft = evaluate(
        pipeline_bubble, replace(given, stage_times=[replace(row, layers=None) for row in given.stage_times])
    )
    assert draft is not None
    assert draft.recommendation.startswith(advice)
    assert "--" not in draft.recommendation


def test_more_micro_batches_are_proposed_with_what_the_formula_gives() -> None:
    draft = evaluate(pipeline_bubble, make_pipeline())
    assert draft is not None
    assert draft.sentence == "4 micro-batches on 4 ranks"
    # (p-1)/(m+p-1): 3/7 now, 3/19 with four times as many.
    assert draft.recommendation.startswith("use --micro-batches 16: with equal stages, the schedule then idles 16 % of")
    assert "instead of 43 %" in draft.recommendation
    assert draft.potential_saving_ns == pytest.approx(40 * MS)


def test_a_batch_that_does_not_divide_must_grow() -> None:
    draft = evaluate(pipeline_bubble, make_pipeline(), batch_size=8)
    assert draft is not None
    assert "use --micro-batches 16 and a --batch-size that is a multiple of 16" in draft.recommendation


def test_interleaving_needs_two_layers_per_rank_and_no_data_parallel_ranks() -> None:
    two = [replace(row, layers=2) for row in make_pipeline().stage_times]
    draft = evaluate(pipeline_bubble, make_pipeline(stage_times=two))
    assert draft is not None
    assert draft.recommendation.endswith("or --pp-schedule interleaved, with two stages per rank: 27 %")
    for pipeline, world in ((make_pipeline(), 4), (make_pipeline(stage_times=two), 8)):
        other = evaluate(pipeline_bubble, pipeline, world_size=world)
        assert other is not None
        assert "interleaved" not in other.recommendation


@pytest.mark.parametrize("schedule", [None, "zero-bubble", "a-schedule-of-tomorrow"])
def test_without_a_formula_no_figure_is_promised(schedule: str | None) -> None:
    draft = evaluate(pipeline_bubble, make_pipeline(schedule=schedule))
    assert draft is not None
    assert "%" not in draft.recommendation


@pytest.mark.parametrize(
    "pipeline", [make_pipeline(9, 9), make_pipeline(43, 20), make_pipeline(43, None)], ids=["small", "else", "unknown"]
)
def test_a_bubble_that_micro_batches_do_not_cause_gets_no_advice(pipeline: Pipeline) -> None:
    assert evaluate(pipeline_bubble, pipeline) is None


HEAVY = HeavyStage(stage=2, rank=2, excess=0.3, gain_ns=5e6, layer_move=LayerMove(to_stage=1, gain_ns=3e6))


def test_a_heavy_stage_is_named_with_what_moving_a_layer_gives() -> None:
    draft = evaluate(heavy_stage, make_pipeline(heavy=HEAVY))
    assert draft is not None
    assert draft.sentence == "stage 2 takes 1.3 times as long per micro-batch"
    assert draft.recommendation.startswith("give a layer of stage 2 to stage 1: by replay")
    far = evaluate(heavy_stage, make_pipeline(heavy=replace(HEAVY, layer_move=LayerMove(to_stage=0, gain_ns=3e6))))
    assert far is not None
    assert far.recommendation.startswith("give a layer of stage 2 to stage 0, or to the stages between: by replay")
    assert "3.00 ms shorter" in draft.recommendation
    unmoved = evaluate(heavy_stage, make_pipeline(heavy=replace(HEAVY, layer_move=None)))
    assert unmoved is not None
    assert "not known to help" in unmoved.recommendation


def test_a_stage_that_is_heavy_in_one_of_two_pipelines_is_on_a_slow_rank() -> None:
    assert evaluate(heavy_stage, make_pipeline(heavy=HEAVY), make_pipeline()) is None
    assert evaluate(heavy_stage, make_pipeline(heavy=HEAVY), make_pipeline(heavy=replace(HEAVY, stage=1))) is None
    assert evaluate(heavy_stage, make_pipeline(heavy=HEAVY), make_pipeline(heavy=HEAVY)) is not None
    assert evaluate(heavy_stage) is None


def test_two_heavy_stages_are_both_named() -> None:
    """To make one of two equal ones lighter hardly helps."""
    two = replace(HEAVY, layer_move=None, also=[StageExcess(stage=1, rank=1, excess=0.3)])
    draft = evaluate(heavy_stage, make_pipeline(heavy=two))
    assert draft is not None
    assert draft.sentence == "stages 1-2 take 1.3 times as long per micro-batch"
    assert draft.recommendation.startswith("move work from stages 1-2 to the other stages: moving one layer of one")


def test_of_several_pipelines_the_stages_count_that_are_heavy_in_all() -> None:
    """Stage 1 is heavy on one rank only, and the longest there: what a move from it gives is not said of stage 2."""
    slow = HeavyStage(
        stage=1, rank=1, excess=0.8, gain_ns=9e6, layer_move=None, also=[StageExcess(stage=2, rank=2, excess=0.3)]
    )
    draft = evaluate(heavy_stage, make_pipeline(heavy=slow), make_pipeline(heavy=HEAVY))
    assert draft is not None
    assert draft.sentence.startswith("stage 2 takes 1.3 times as long")
    assert draft.potential_saving_ns == pytest.approx(5 * MS)


def test_a_heavy_stage_for_which_the_bubble_has_room_gets_no_advice() -> None:
    assert evaluate(heavy_stage, make_pipeline(heavy=replace(HEAVY, gain_ns=1e6, layer_move=None))) is None


def test_waiting_in_the_bubble_is_not_called_waiting_for_ranks() -> None:
    changes: dict[str, Any] = {
        "findings": [],
        "efficiency": make_efficiency(wait_ns=400 * MS, transfer_ns=0, unmatched_ns=0),
    }
    assert evaluate(waiting, **changes) is not None
    assert evaluate(waiting, make_pipeline(), **changes) is None


def test_a_bubble_of_transfers_gets_fewer_messages_and_what_the_schedule_then_idles() -> None:
    draft = evaluate(pipeline_transfers, make_pipeline(50, 20, micro_batches=8))
    assert draft is not None
    assert draft.sentence.startswith("transfers, ")
    assert draft.recommendation == (
        "try --micro-batches 4: half as many messages, each twice as large; with equal stages the schedule then idles "
        "43 % of the pipeline's time instead of 27 %"
    )
    assert draft.potential_saving_ns == pytest.approx(30 * MS)
    several = evaluate(pipeline_transfers, make_pipeline(50, 20, micro_batches=8, stages=8, schedule="interleaved"))
    assert several is not None
    assert several.recommendation.startswith("try --pp-schedule 1f1b, which sends fewer messages per micro-batch; with")
    foreign = make_pipeline(50, 20, micro_batches=8)
    foreign = replace(foreign, stage_times=[replace(row, layers=None) for row in foreign.stage_times])
    other = evaluate(pipeline_transfers, foreign)
    assert other is not None
    assert other.recommendation.startswith("try 4 micro-batches per step")


@pytest.mark.parametrize(
    ("dimension", "named"), [("dp", True), ("replicate+shard", True), ("tp", False), (None, False)]
)
def test_stages_may_wait_for_what_another_exchanges_with_data_parallel_ranks(
    dimension: str | None, named: bool
) -> None:
    draft = evaluate(pipeline_transfers, make_pipeline(50, 20), dimensions=make_dimensions((dimension, 1, 1)))
    assert draft is not None
    assert ("transfers, communication of data-parallel ranks, and what" in draft.sentence) == named
    assert ("transfers, and what" in draft.sentence) == (not named)


@pytest.mark.parametrize(("schedule", "batches"), [("gpipe", 4), ("gpipe", 9), ("none", 1), (None, 8)])
def test_fewer_micro_batches_are_not_proposed_where_stages_would_be_empty_or_nothing_is_known(
    schedule: str | None, batches: int
) -> None:
    draft = evaluate(pipeline_transfers, make_pipeline(50, 20, micro_batches=batches, schedule=schedule))
    assert draft is not None
    assert draft.recommendation.startswith("perfkit merge")


@pytest.mark.parametrize(("bubble", "ideal"), [(50, 30), (8, 0), (50, None)])
def test_a_bubble_of_the_schedule_and_a_small_one_are_not_blamed_on_transfers(bubble: int, ideal: int | None) -> None:
    assert evaluate(pipeline_transfers, make_pipeline(bubble, ideal)) is None
    assert evaluate(pipeline_transfers) is None


def test_messages_are_not_blamed_for_a_rank_that_loads_data_before_its_micro_batches() -> None:
    pipeline = make_pipeline(50, 20, micro_batches=8)
    quiet = make_step(1, communication=50 * MS, compute=50 * MS, data_loading=0, overhead=0)
    loads = make_step(1, communication=20 * MS, compute=50 * MS, data_loading=30 * MS, overhead=0)

    def ranks(*steps: StepBreakdown) -> list[RankReport]:
        return [make_rank(rank, [replace(step, step=number) for number in (1, 2)]) for rank, step in enumerate(steps)]

    assert evaluate(pipeline_transfers, pipeline, ranks=ranks(quiet, quiet, quiet, quiet)) is not None
    # The others wait for it for 30 of the 30 ms that neither schedule nor stages explain.
    assert evaluate(pipeline_transfers, pipeline, ranks=ranks(loads, quiet, quiet, quiet)) is None
    # What all do at a time is waited for by none.
    assert evaluate(pipeline_transfers, pipeline, ranks=ranks(loads, loads, loads, loads)) is not None
