"""Why a rank is late: said where one cause of idle time, or work that the others do not have, takes most of it."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.engine.ranks.late_causes import name_causes
from perfkit.pipeline.words import find_insights
from perfkit.records.per_rank.idle import IdleCause
from perfkit.records.per_run.pipeline import Pipeline, PipelineRank
from perfkit.records.rank import OTHER_NAMES, RankReport
from perfkit.records.report import Insight
from tests.support.reports.report_builders import (
    MS,
    make_across,
    make_dimensions,
    make_efficiency,
    make_foreign_run,
    make_operator,
)
from tests.support.traces.idle_builders import STEPS, idle_rank, row
from tests.unit.pipeline.test_insights import make_straggler

COMMON = row("host_work", "perfkit.forward", 5)
COLLECT = row("host_work", "<built-in function collect>", 22, "train.py(20): train")
SLEEP = row("not_running", "<built-in function sleep>", 11, "`wait`")
OLD_ADVICE = "check launches, Python and synchronisation on rank 1, and what else runs there"


def waiting(prompt: list[IdleCause], late: list[IdleCause], **straggler: Any) -> Insight:
    """The advice of a run of which rank 1 is 20 ms late, with these causes of idle time."""
    ranks = [idle_rank(*rows, rank=number) for number, rows in enumerate((prompt, late))]
    return advice(ranks, **({"category": "overhead"} | straggler))


def advice(
    ranks: list[RankReport], late: Sequence[int] = (1,), run: dict[str, Any] | None = None, **straggler: Any
) -> Insight:
    for number, rank in enumerate(ranks):  # rank 0 waits for the late ones
        waited = 30 * MS * (number == 0)
        steps = [
            replace(step, exposed_ns=replace(step.exposed_ns, communication=waited), wall_ns=step.wall_ns + waited)
            for step in rank.steps
        ]
        ranks[number] = replace(rank, steps=steps)
    made = [make_straggler(rank, **straggler) for rank in late]
    stragglers = [replace(row, work=named.work) for row, named in zip(made, name_causes(made, ranks, {}), strict=True)]
    fields: dict[str, Any] = {
        "ranks": ranks,
        "world_size": len(ranks),
        "efficiency": make_efficiency(wait_ns=110 * MS, transfer_ns=10 * MS, unmatched_ns=0),
        "dimensions": make_dimensions(("dp", 110, 10)),
        "cross_rank": make_across(stragglers=stragglers, stragglers_gain_ns=20 * MS),
    }
    plain = make_foreign_run(**(fields | (run or {})))
    (found,) = [one for one in find_insights([plain], None).insights if one.rule == "waiting"]
    return found


def test_the_cause_and_its_remedy_are_named() -> None:
    found = waiting([COMMON], [COMMON, replace(COLLECT, total_ns=COLLECT.total_ns * 9 // 11)])
    assert found.recommendation.startswith("collect garbage between steps")
    assert found.sentence == "Rank 1 late, 20.0 ms"  # what mending it gives, whatever takes its time


def test_the_phase_is_not_said_twice() -> None:
    more = replace(COMMON, total_ns=COMMON.total_ns + 4 * 18 * MS, count=40)
    assert waiting([COMMON], [more], phase="forward").sentence == "Rank 1 late, 20.0 ms"  # the row has the phase


def test_nothing_is_said_of_another_phase_than_the_one_that_is_named() -> None:
    more = replace(COMMON, total_ns=COMMON.total_ns + 4 * 18 * MS)
    found = waiting([COMMON], [more], phase="backward")
    assert found.recommendation == OLD_ADVICE


@pytest.mark.parametrize(
    ("prompt", "late"),
    [
        ([COLLECT], [COLLECT]),  # the others have as much
        ([COLLECT], [replace(COLLECT, detail="other")]),  # of another name, and no more of the cause
        ([], [row("host_work", "a", 9), row("not_running", "b", 8), row("unknown", "c", 7)]),  # none takes most
        ([COLLECT], []),
    ],
)
def test_nothing_is_named_that_does_not_take_most_of_the_difference(
    prompt: list[IdleCause], late: list[IdleCause]
) -> None:
    found = waiting(prompt, late)
    assert found.recommendation == OLD_ADVICE


@pytest.mark.parametrize("change", [{"category": "compute"}, {"every": 3}])
def test_only_idle_time_of_every_step_is_explained(change: dict[str, Any]) -> None:
    assert "collect garbage" not in waiting([COMMON], [COMMON, COLLECT], **change).recommendation


def test_what_the_others_have_more_of_does_not_hide_another_cause() -> None:
    found = waiting([COMMON, SLEEP], [COMMON, COLLECT])
    assert "collect garbage" in found.recommendation


def test_a_long_pause_in_one_step_is_not_why_a_rank_is_late_in_all() -> None:
    once = row("host_work", "save", 200, count=1)
    assert waiting([COMMON], [COMMON, SLEEP, once]).recommendation == OLD_ADVICE
    short = row("not_running", "short", 12, count=1)
    assert "`wait`" in waiting([COMMON], [COMMON, SLEEP, short]).recommendation


def test_the_advice_concerns_only_the_late_rank() -> None:
    for cause, expected in {
        "launch_bound": "check for more launches, a slower core or a shared one on rank 1",
        "synchronisation": "do not wait for the device in every step",
        "compilation": "find what is compiled or loaded in steps of rank 1, and why for longer than on other ranks",
        "not_running": "find what",
    }.items():
        found = waiting([COMMON], [COMMON, row(cause, "perfkit.forward", 18)])
        assert found.recommendation.startswith(expected), found.recommendation


def test_what_all_ranks_compile_is_not_why_one_is_late() -> None:
    compiling = row("compilation", "compile", 40)
    found = waiting([compiling], [compiling, COLLECT])
    assert found.recommendation.startswith("collect garbage")


def test_an_operator_that_runs_in_each_step_is_no_first_call() -> None:
    ranks = [idle_rank(COMMON, rank=number) for number in range(5)]
    ranks[1] = idle_rank(COMMON, row("host_work", "aten::item", 18), rank=1)
    assert advice(ranks, category="overhead").recommendation.startswith("check what this operator works on")


def test_late_ranks_have_the_same_reason_or_each_its_own() -> None:
    sleeping = replace(SLEEP, total_ns=2 * SLEEP.total_ns)

    def of(second: Any) -> str:
        late = [idle_rank(COMMON, one, rank=number) for number, one in enumerate((COLLECT, second), 1)]
        return advice([idle_rank(COMMON, rank=0), *late], late=(1, 2), category="overhead").recommendation

    assert of(COLLECT).startswith("fix both; collect garbage")
    first, second = of(sleeping).split("; rank 2: ")
    assert "; rank 1: collect garbage" in first
    assert "collect" not in second
    assert "`wait`" in second


@pytest.mark.parametrize("times", [(1.3, 1.1), (1.3, 1.2), (1.1, 1.3)])
def test_two_slow_ranks_have_each_its_own_factor(times: tuple[float, float]) -> None:
    ranks = []
    for number, factor in enumerate((1.0, *times)):
        operators = [make_operator("mm", count=STEPS * 12, total_ns=round(STEPS * 100 * factor * MS))]
        ranks.append(replace(idle_rank(COMMON, rank=number), operators=operators))
    sentence = advice(ranks, late=(1, 2), category="compute").sentence
    for number, factor in enumerate(times, 1):
        assert f"rank {number}: as many kernels as on the others, in {factor} times the time" in sentence


def test_other_stages_of_a_pipeline_are_no_others() -> None:
    at = [[0], [0], [1]]
    own: dict[str, Any] = {"wall_ns": 1, "compute_ns": 1, "bubble_ns": 0, "ideal_ns": None, "imbalance_ns": None}
    own |= {"communication_ns": None, "other_communication_ns": 10, "other_ns": 0}
    rows = [PipelineRank(rank=number, stages=stages, **own) for number, stages in enumerate(at)]
    pipeline = Pipeline(schedule=None, stages=2, micro_batches=2, steps=4, ranks=rows, stage_times=[])
    busy = idle_rank(replace(COLLECT, total_ns=2 * COLLECT.total_ns), rank=2)
    ranks = [idle_rank(COMMON, rank=0), idle_rank(COMMON, COLLECT, rank=1), busy]
    assert "collect" not in advice(list(ranks), category="overhead").recommendation
    assert "collect" in advice(list(ranks), run={"pipelines": [pipeline]}, category="overhead").recommendation
    dimensions = make_dimensions(("dp", 110, 10), ("pp", 1, 1))
    unknown = advice([idle_rank(COMMON, rank=0), idle_rank(COMMON, COLLECT, rank=1)], run={"dimensions": dimensions})
    assert "collect" not in unknown.recommendation


def computing(prompt: dict[str, tuple[int, int]], late: dict[str, tuple[int, int]], **straggler: Any) -> Insight:
    """The same where rank 1 computes for longer.

    Args:
        prompt: for each operator of rank 0 how often it runs per step, and its time in ms.
        late: those of rank 1.
        straggler: what else is known of rank 1.
    """
    ranks = []
    for number, rows in enumerate((prompt, late)):
        operators = [
            make_operator(name, count=STEPS * runs, total_ns=STEPS * ms * MS) for name, (runs, ms) in rows.items()
        ]
        ranks.append(replace(idle_rank(COMMON, rank=number), operators=operators))
    return advice(ranks, **({"category": "compute"} | straggler))


def test_an_operator_that_runs_more_often_is_named() -> None:
    usual = {"mm": (12, 12), "add": (4, 4)}
    found = computing(usual, usual | {"mm": (32, 32)})
    assert found.sentence.endswith(": 32 mm per step, 12 on the others")
    assert found.recommendation == "find why mm runs more often on rank 1"
    assert ": 10 other{} per step, 0 on the others" in computing(usual, usual | {"other{}": (10, 20)}).sentence


def test_ranks_that_nothing_links_with_the_late_ones_are_no_others() -> None:
    busy = idle_rank(
        replace(COLLECT, total_ns=2 * COLLECT.total_ns), rank=2
    )  # of another group, which collects garbage in every step
    ranks = [idle_rank(COMMON, rank=0), idle_rank(COMMON, COLLECT, rank=1), busy]
    assert "collect" not in advice(list(ranks), category="overhead").recommendation
    assert "collect" in advice(list(ranks), category="overhead", delays=[0]).recommendation


def test_more_operators_of_many_kinds() -> None:
    found = computing({f"op{n}": (1, 4) for n in range(5)}, {f"op{n}": (2, 8) for n in range(5)})
    assert found.sentence.endswith(": 10 kernels per step, 5 on the others")
    assert found.recommendation == "find what else is computed on rank 1"


def test_those_that_are_compared_are_named_where_they_are_not_all_others() -> None:
    runs = [make_operator("mm", count=STEPS * count, total_ns=STEPS * count * MS) for count in (12, 32, 50)]
    ranks = [replace(idle_rank(COMMON, rank=number), operators=[one]) for number, one in enumerate(runs)]
    found = advice(ranks, category="compute", delays=[0])
    assert found.sentence.endswith(": 32 mm per step, 12 on rank 0")


def test_the_runs_that_a_rank_has_more_may_be_longer() -> None:
    found = computing({"mm": (3, 3)}, {"mm": (17, 24)})
    assert found.sentence.endswith(": 17 mm per step, 3 on the others")


def test_thousands_of_runs_are_written_out() -> None:
    found = computing({"mm": (1000, 20)}, {"mm": (2000, 40)})
    assert found.sentence.endswith(": 2,000 mm per step, 1,000 on the others")


def test_names_that_are_not_listed_are_only_counted() -> None:
    found = computing({"mm": (12, 12), OTHER_NAMES: (4, 4)}, {"mm": (12, 12), OTHER_NAMES: (24, 24)})
    assert found.sentence.endswith(": 36 kernels per step, 16 on the others")
    found = computing({"mm": (12, 12), OTHER_NAMES: (4, 4)}, {"mm": (12, 12), "listed": (20, 20), OTHER_NAMES: (4, 4)})
    assert found.recommendation == "find what else is computed on rank 1"


def test_as_many_operators_that_take_longer() -> None:
    found = computing({"mm": (12, 30), "add": (4, 10)}, {"mm": (12, 45), "add": (4, 15)})
    assert found.sentence.endswith(": as many kernels as on the others, in 1.5 times the time")
    assert found.recommendation == "check for larger inputs, a slower device or a shared one on rank 1"


@pytest.mark.parametrize(
    ("prompt", "late"),
    [
        ({"mm": (12, 12)}, {"mm": (12, 20)}),  # 8 of 20 ms: what is recorded does not explain it
        ({"small": (12, 12)}, {"large": (12, 32)}),  # another kernel, as libraries choose for larger inputs
        ({"mm": (10, 20)}, {"mm": (15, 40)}),  # both, half each
        ({"small": (1, 10)}, {"large": (1, 25), "split": (1, 5)}),  # another kernel, with one more after it
        ({"mm": (12, 20)}, {"mm": (12, 40), "tiny": (12, 0)}),  # not as many, though of no length
        ({"mm": (12, 0)}, {"mm": (12, 20)}),  # none lasts on the others, by their clock
    ],
)
def test_neither_is_said_where_it_does_not_explain_the_lag(
    prompt: dict[str, tuple[int, int]], late: dict[str, tuple[int, int]]
) -> None:
    found = computing(prompt, late)
    assert found.sentence == "Rank 1 late, 20.0 ms"
    assert found.recommendation == "check for more work, a slower device or a shared one on rank 1"
