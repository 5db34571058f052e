"""Why a rank is late: said where one cause of idle time, or work that the others do not have, takes most of it."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.insights.ranking import find_insights
from perfkit.schema.per_rank.idle import IdleCause
from perfkit.schema.rank import RankReport
from perfkit.schema.report import Insight
from tests.support.reports.report_builders import (
    MS,
    make_across,
    make_dimensions,
    make_efficiency,
    make_foreign_run,
    make_operator,
)
from tests.support.traces.idle_builders import STEPS, idle_rank, row
from tests.unit.insights.test_insights import make_straggler

COMMON = row("host_work", "perfkit.forward", 5)
COLLECT = row("host_work", "<built-in function collect>", 22, "train.py(20): train")
SLEEP = row("not_running", "<built-in function sleep>", 11, "train.py(30): wait")
OLD_ADVICE = "check launches, Python and synchronisation on rank 1, and what else runs there"


def waiting(prompt: list[IdleCause], late: list[IdleCause], **straggler: Any) -> Insight:
    """The advice of a run of which rank 1 is 20 ms late, with these causes of idle time."""
    ranks = [idle_rank(*rows, rank=number) for number, rows in enumerate((prompt, late))]
    return advice(ranks, **({"category": "overhead"} | straggler))


def advice(ranks: list[RankReport], **straggler: Any) -> Insight:
    for number, rank in enumerate(ranks):  # rank 0 waits for rank 1
        waited = 30 * MS * (number == 0)
        steps = [
            replace(step, exposed_ns=replace(step.exposed_ns, communication=waited), wall_ns=step.wall_ns + waited)
            for step in rank.steps
        ]
        ranks[number] = replace(rank, steps=steps)
    one = make_straggler(1, **straggler)
    run = make_foreign_run(
        ranks=ranks,
        world_size=len(ranks),
        efficiency=make_efficiency(wait_ns=110 * MS, transfer_ns=10 * MS, unmatched_ns=0),
        dimensions=make_dimensions(("dp", 110, 10)),
        cross_rank=make_across(stragglers=[one], stragglers_gain_ns=20 * MS),
    )
    (found,) = [one for one in find_insights([run], None).insights if one.rule == "waiting"]
    return found


def test_the_cause_and_its_remedy_are_named() -> None:
    found = waiting([COMMON], [COMMON, replace(COLLECT, total_ns=COLLECT.total_ns * 9 // 11)])
    assert found.sentence.endswith(
        "waiting for rank 1, which spends 20.0 ms more per step idle: 18.0 ms of it is host work, most of that "
        "<built-in function collect> in train.py(20): train (18.0 ms per step)"
    )
    assert found.recommendation.startswith("collect garbage between steps")
    assert found.potential_saving_ns == 20 * MS  # what mending the rank gives, whatever takes its time


def test_the_phase_is_not_said_twice() -> None:
    more = replace(COMMON, total_ns=COMMON.total_ns + 4 * 18 * MS, count=40)
    found = waiting([COMMON], [more], phase="forward")
    assert found.sentence.endswith("20.0 ms more per step idle in forward: 18.0 ms of it is host work")
    optimizer = waiting([], [row("host_work", "perfkit.optimizer", 18)], phase="optimizer")
    assert optimizer.sentence.endswith("idle in optimizer: 18.0 ms of it is host work")
    elsewhere = waiting([COMMON], [more], phase="backward").sentence
    assert elsewhere.endswith(
        "idle in backward: 18.0 ms of it is host work, most of that in forward (18.0 ms per step)"
    )


def test_no_part_is_longer_than_the_whole() -> None:
    found = waiting([COMMON, row("host_work", "perfkit.backward", 2)], [COMMON, COLLECT])
    assert found.sentence.endswith(
        "most of that <built-in function collect> in train.py(20): train (20.0 ms per step)"
    ), found.sentence


def test_a_cause_that_takes_longer_than_the_rank_is_late_is_most_of_it() -> None:
    assert "idle: most of it is host work, most of that <built-in" in waiting([COMMON], [COMMON, COLLECT]).sentence


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
    assert found.sentence.endswith("which spends 20.0 ms more per step idle")
    assert found.recommendation == OLD_ADVICE


@pytest.mark.parametrize("change", [{"category": "compute"}, {"every": 3}])
def test_only_idle_time_of_every_step_is_explained(change: dict[str, Any]) -> None:
    assert "collect" not in waiting([COMMON], [COMMON, COLLECT], **change).sentence


def test_what_the_others_have_more_of_does_not_hide_another_cause() -> None:
    found = waiting([COMMON, SLEEP], [COMMON, COLLECT])
    assert "most of it is host work, most of that <built-in function collect>" in found.sentence


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
    assert found.sentence.endswith("20.0 ms more per step computing (32 mm per step, 12 on the others)")
    assert found.recommendation == "find why mm runs more often on rank 1"
    assert "(10 other{} per step, 0 on the others)" in computing(usual, usual | {"other{}": (10, 20)}).sentence


def test_ranks_that_nothing_links_with_the_late_ones_are_no_others() -> None:
    busy = idle_rank(
        replace(COLLECT, total_ns=2 * COLLECT.total_ns), rank=2
    )  # of another group, which collects garbage in every step
    ranks = [idle_rank(COMMON, rank=0), idle_rank(COMMON, COLLECT, rank=1), busy]
    assert "collect" not in advice(list(ranks), category="overhead").sentence
    assert "collect" in advice(list(ranks), category="overhead", delays=[0]).sentence


def test_more_operators_of_many_kinds() -> None:
    found = computing({f"op{n}": (1, 4) for n in range(5)}, {f"op{n}": (2, 8) for n in range(5)})
    assert found.sentence.endswith("computing (10 kernels per step, 5 on the others)")
    assert found.recommendation == "find what else is computed on rank 1"


def test_as_many_operators_that_take_longer() -> None:
    found = computing({"mm": (12, 30), "add": (4, 10)}, {"mm": (12, 45), "add": (4, 15)})
    assert found.sentence.endswith("computing (as many kernels as on the others, which take 1.5 times as long)")
    assert found.recommendation == "check for larger inputs, a slower device or a shared one on rank 1"


@pytest.mark.parametrize(
    ("prompt", "late"),
    [
        ({"mm": (12, 12)}, {"mm": (12, 20)}),  # 8 of 20 ms: what is recorded does not explain it
        ({"small": (12, 12)}, {"large": (12, 32)}),  # another kernel, as libraries choose for larger inputs
        ({"mm": (10, 20)}, {"mm": (15, 40)}),  # both, half each
    ],
)
def test_neither_is_said_where_it_does_not_explain_the_lag(
    prompt: dict[str, tuple[int, int]], late: dict[str, tuple[int, int]]
) -> None:
    found = computing(prompt, late)
    assert found.sentence.endswith("which spends 20.0 ms more per step computing")
    assert found.recommendation == "check for more work, a slower device or a shared one on rank 1"
