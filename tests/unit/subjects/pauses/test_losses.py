"""What is said of checkpoints, evaluations and logging between steps, and when nothing may be said."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.pipeline.words import find_insights
from perfkit.records.per_run.pauses import RankPauses
from perfkit.records.report import Insight, Report
from perfkit.records.run import RunReport
from perfkit.report.content.answer import advice
from tests.support.reports.report_builders import MS, make_efficiency, make_foreign_run, make_rank, make_step

STEPS = 4


def pauses(**changes: Any) -> RankPauses:
    """Two checkpoints of 100 ms in four steps of 100 ms."""
    row = RankPauses(phase="checkpoint", rank=0, count=2, total_ns=200 * MS, max_ns=100 * MS, recorded=2)
    return replace(row, **({"recorded_ns": 200 * MS} | changes))


def run(*rows: RankPauses, ranks: int = 1) -> RunReport:
    step = replace(
        make_step(0, compute=100 * MS, communication=0, data_loading=0, overhead=0, hidden=0), paused_ns=50 * MS
    )
    steps = [replace(step, step=number) for number in range(STEPS)]
    made = [make_rank(rank, steps, phases=[], operators=[]) for rank in range(ranks)]
    return make_foreign_run(ranks=made, world_size=ranks, pauses=list(rows))


def insights(report: RunReport) -> list[Insight]:
    return [one for one in find_insights([report], None).insights if one.rule == "pauses"]


def test_checkpoints_between_steps() -> None:
    (found,) = insights(run(pauses()))
    assert found.sentence == "2 checkpoints in 4 steps take 100 ms each, besides the steps"
    assert found.recommendation == (
        "save less often, or while training goes on (torch.distributed.checkpoint.async_save)"
    )
    assert found.potential_saving_ns == 50 * MS


def test_the_rank_is_named_where_there_are_several() -> None:
    rows = [pauses(rank=1), pauses(rank=0, phase="evaluation", recorded_ns=20 * MS)]
    (found,) = insights(run(*rows, ranks=2))
    assert "in 4 steps on rank 1 take" in found.sentence
    assert found.sentence.endswith("besides the steps")


def test_other_ranks_that_pause_for_the_same_are_told() -> None:
    rows = [pauses(rank=rank, phase="evaluation", recorded_ns=(150 + rank) * MS) for rank in range(3)]
    (found,) = insights(run(*rows[:2], ranks=3))
    assert found.sentence == (
        "2 evaluations in 4 steps on rank 1 take 75.5 ms each, besides the steps (rank 0 has evaluations, too)"
    )
    (found,) = insights(run(*rows, ranks=3))
    assert "on rank 2" in found.sentence
    assert found.sentence.endswith("(ranks 0 and 1 have evaluations, too)")


def test_what_is_done_already_is_not_advised() -> None:
    (found,) = insights(run(pauses(asynchronous=2)))
    assert found.recommendation == "save less often, or less at a time: every checkpoint is asynchronous already"
    (found,) = insights(run(pauses(asynchronous=1)))
    assert "async_save" in found.recommendation


@pytest.mark.parametrize(
    "row",
    [
        pauses(recorded=1),  # how often there is one is not known
        pauses(recorded=0, recorded_ns=0),
        pauses(recorded_ns=25 * MS),  # 4 % of 600 ms
    ],
)
def test_silence_about_pauses(row: RankPauses) -> None:
    assert not insights(run(row))


def test_the_whole_run_tells_how_often_there_is_one_where_few_steps_are_recorded() -> None:
    whole = pauses(recorded=1, recorded_ns=100 * MS, count=19, total_ns=1900 * MS, steps=40, caller="train.py:14 save")
    (found,) = insights(run(whole))
    assert found.sentence == "19 checkpoints (train.py:14 save) in 40 steps take 100 ms each, besides the steps"
    assert found.potential_saving_ns == pytest.approx(1900 * MS / 40)
    assert not insights(run(replace(whole, total_ns=19 * 10 * MS)))  # 4.5 % of 40 steps and the pauses


def test_pauses_that_no_other_advice_is_about_are_told_though_others_wait_for_them() -> None:
    assert insights(run(pauses(waited_ns=150 * MS)))


def test_what_a_pause_takes_is_no_part_of_what_others_save() -> None:
    report = run(pauses(recorded_ns=4 * 90 * MS))
    other = Insight(
        rule="host", run=report.run, sentence="", evidence={}, recommendation="", potential_saving_ns=60.0 * MS
    )
    several = Report(perfkit_version="", runs=[report], insights=[*insights(report), other])
    assert [one.potential_saving for one in advice(several)] == ["saves up to 90.0 ms", "saves up to 60.0 ms"]


def test_what_others_wait_for_a_pause_is_a_part_of_their_steps_and_not_of_the_mean_over_ranks() -> None:
    step = make_step(0, compute=10 * MS, communication=0, data_loading=0, overhead=0, hidden=0)
    waits = make_step(0, compute=10 * MS, communication=90 * MS, data_loading=0, overhead=0, hidden=0)
    ranks = [
        make_rank(rank, [replace(one, step=number) for number in range(STEPS)], phases=[], operators=[])
        for rank, one in enumerate([waits, step])
    ]
    row = pauses(phase="evaluation", rank=1, recorded=4, recorded_ns=360 * MS, waited_ns=360 * MS)
    efficiency = make_efficiency(wait_ns=360 * MS, transfer_ns=0, unmatched_ns=0)
    report = make_foreign_run(ranks=ranks, world_size=2, pauses=[row], efficiency=efficiency)
    (waiting,) = [one for one in find_insights([report], None).insights if one.rule == "waiting"]
    # The mean over both ranks is 55 ms: a step that waits takes longer.
    assert waiting.potential_saving_ns == 90 * MS
