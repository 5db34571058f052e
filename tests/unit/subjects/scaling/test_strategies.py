"""Strategies at equal global batch: which is fastest, why, and only what the figures show."""

from typing import Any

import pytest

from perfkit.records.manifest import RankMemory
from perfkit.records.run import RunReport
from perfkit.records.scaling import StrategyComparison
from perfkit.report.content.options import strategies
from tests.support.reports.report_builders import MS, make_dimensions, make_rank, make_step
from tests.support.reports.scaling_builders import make_scaled, make_throughput
from tests.support.reports.worded import strategy_comparisons

SIZE, GLOBAL = 4, 32


def make(strategy: dict[str, Any], step_ms: float, number: int = 0, **changes: Any) -> RunReport:
    """A run of four ranks and 32 samples per step, of which `dp` and `tp` communication is exposed."""
    held = changes.pop("held", 16)
    parts = changes.pop("parts", (("dp", 10),))
    replicas = changes.pop("replicas", SIZE)
    communication = sum(ms for _, ms in parts)
    compute = round(step_ms - communication) * MS
    step = {"compute": compute, "communication": communication * MS, "data_loading": 0, "overhead": 0}
    ranks = [make_rank(rank, [make_step(5, **step), make_step(6, **step)]) for rank in range(SIZE)]
    summary = make_dimensions(*((name, 0, 2 * SIZE * ms) for name, ms in parts), rank_steps=2 * SIZE)
    fields: dict[str, Any] = {
        "ranks": ranks,
        "dimensions": summary,
        "rank_memory": [RankMemory(parameters_bytes=held, gradients_bytes=held, optimizer_bytes=2 * held)] * SIZE,
        "throughput": make_throughput(replicas, GLOBAL // replicas, round(step_ms * MS)),
        "name": f"{strategy.get('mesh')}-{strategy.get('dp')}-{number}",
    }
    return make_scaled(
        SIZE,
        step_ms,
        batch=GLOBAL // replicas,
        config={"mesh": None, "dp": "ddp", "accumulate": 1} | strategy,
        **(fields | changes),
    )


def repeated(strategy: dict[str, Any], *steps_ms: float, **changes: Any) -> list[RunReport]:
    return [make(strategy, ms, number, **changes) for number, ms in enumerate(steps_ms)]


def the(runs: list[RunReport]) -> StrategyComparison:
    (comparison,) = strategy_comparisons(runs)
    return comparison


TP = {"mesh": "dp=2,tp=2"}


def test_the_fastest_wins_with_the_reason_and_the_least_memory() -> None:
    runs = [
        *repeated({}, 100, 101, 99, parts=(("dp", 50),), held=100),
        *repeated(TP, 80, 81, 79, parts=(("dp", 20), ("tp", 8)), held=50, replicas=2),
        *repeated({"dp": "zero3"}, 120, 121, 119, parts=(("dp", 70),), held=25),
    ]
    found = the(runs)
    assert [row.strategy for row in found.rows] == ["dp=2,tp=2 ddp", "dp=4 ddp", "dp=4 zero3"]
    assert found.sentence == (
        "dp=2,tp=2 ddp is fastest: dp=4 ddp takes 1.25 times as long; most of the difference is exposed dp "
        "communication, 20.0 ms against 50.0 ms per profiled step; dp=4 zero3 holds least: "
        "100 B per rank, against 200 B"
    )
    assert found.samples_per_step == GLOBAL
    (table,) = strategies([found])
    first = [cell.text for cell in table.rows[0]]
    assert first == ["dp=2,tp=2 ddp", "3", "80.0 ms", "25,600", "1", "200 B", "dp 25.0 %, tp 10.0 %"]


@pytest.mark.parametrize(
    ("one", "other", "doubt"),
    [
        ((100,), (80,), "with fewer than three runs of each cannot be told from noise"),
        ((100, 60, 140), (98, 60, 138), "which cannot be told from noise"),
    ],
)
def test_a_difference_within_noise_is_called_that(one: Any, other: Any, doubt: str) -> None:
    assert doubt in the([*repeated({}, *one), *repeated(TP, *other, replicas=2)]).sentence


def test_nothing_is_said_of_why_or_of_memory_where_figures_do_not_show_it() -> None:
    """The profiled steps contradict, and memory was not measured."""
    slow_in_profile = [make_rank(rank, [make_step(5, compute=300 * MS)] * 2) for rank in range(SIZE)]
    runs = [make({}, 100), make(TP, 80, replicas=2, ranks=slow_in_profile, rank_memory=[])]
    sentence = the(runs).sentence
    assert sentence.startswith("dp=2,tp=2 is fastest")
    assert "difference" not in sentence
    assert "holds" not in sentence
    # The fastest holds least: no other is named.
    assert "holds" not in the([make({}, 100, held=8), make(TP, 80, replicas=2, held=4)]).sentence


@pytest.mark.parametrize(
    "other",
    [
        make(TP, 80, replicas=2, throughput=make_throughput(2, 32, 80 * MS)),  # another global batch
        make({"mesh": "dp=2,tp=2", "precision": "bfloat16"}, 80, replicas=2),
        make({"accumulate": 2}, 80),  # the same strategy
        make({}, 80),
        make(TP, 80, replicas=2, throughput=None),
        make(TP, 80, replicas=2, state="failed"),
    ],
)
def test_only_strategies_at_equal_batch_are_compared(other: RunReport) -> None:
    assert strategy_comparisons([make({}, 100), other]) == []


def test_a_pipeline_is_named_with_what_differs() -> None:
    runs = [
        make({"mesh": "pp=4", "pp_schedule": name, "micro_batches": 8}, ms, replicas=1)
        for name, ms in (("gpipe", 100), ("1f1b", 90))
    ]
    assert [row.strategy for row in the(runs).rows] == ["pp=4 pp_schedule=1f1b", "pp=4 pp_schedule=gpipe"]
