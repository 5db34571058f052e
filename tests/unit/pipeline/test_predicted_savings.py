"""What recommendations promise: what a replay predicts, never more than their row of the ledger; unknown without it."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.engine.losses.context import loss_context
from perfkit.pipeline.losses import find_losses
from perfkit.pipeline.words import find_insights
from perfkit.records.per_run.whatif import PredictedSaving
from perfkit.records.report import Insight, Report
from perfkit.records.run import RunReport
from perfkit.report.content.answer import advice
from tests.support.reports.report_builders import MS, make_loading, make_rank, make_step
from tests.support.reports.scaling_builders import make_ranks, make_scaled

PARTS = {"compute": 50 * MS, "communication": 0, "data_loading": 30 * MS, "overhead": 20 * MS}


def run_with(*, parts: dict[str, int] = PARTS, **savings_ms: float) -> RunReport:
    """Return a run of 100 ms with input and idle time, and predictions for it."""
    changes = {"input": "input=0"}
    predicted = [PredictedSaving(change=changes[name], saving_ns=ms * MS) for name, ms in savings_ms.items()]
    fields: dict[str, Any] = {"cross_rank": None, "efficiency": None, "dimensions": None}
    return make_scaled(
        2, 100, ranks=make_ranks([parts] * 2), data_loading=make_loading(), predicted_savings=predicted, **fields
    )


def the_input(run: RunReport) -> Insight:
    (one,) = [insight for insight in find_insights([run], None).insights if insight.rule == "input"]
    return one


@pytest.mark.parametrize(
    ("savings_ms", "saving_ms", "predicted_for"),
    [
        ({}, None, None),  # nothing to replay: unknown
        ({"input": 12.3}, 12.3, "input=0"),
        ({"input": 30}, 30, "input=0"),
        ({"input": 45}, 30, None),  # some of another row, too: a bound
    ],
)
def test_a_saving_is_what_is_predicted_but_no_more_than_its_row(
    savings_ms: dict[str, Any], saving_ms: float | None, predicted_for: str | None
) -> None:
    (one,) = [one for one in find_losses([run_with(**savings_ms)], None).ranked if one.subject == "input"]
    assert one.row is not None
    assert (one.row.cause, one.row.ns) == ("data_loading", 30 * MS)
    assert (one.saving_ns, one.predicted_for) == (None if saving_ms is None else saving_ms * MS, predicted_for)


@pytest.mark.parametrize(("row_ms", "saving_ms"), [(4, 4), (30, 0.5), (30, -2)])
def test_what_has_a_small_row_or_saves_nearly_nothing_is_no_loss(row_ms: int, saving_ms: float) -> None:
    parts = PARTS | {"compute": (80 - row_ms) * MS, "data_loading": row_ms * MS}
    assert "input" not in [one.rule for one in find_losses([run_with(parts=parts, input=saving_ms)], None).ranked]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"predicted_for": "input=0"}, "saves 12.3 ms"),
        ({"predicted_for": None}, "saves up to 12.3 ms"),
        ({"potential_saving_ns": None}, ""),
        ({"only_finds_out": True}, ""),  # more traces or annotations make no step shorter
    ],
)
def test_a_promise_says_whether_it_is_a_bound(changes: dict[str, Any], said: str) -> None:
    run = run_with(input=12.3)
    (item,) = advice(Report(perfkit_version="", runs=[run], insights=[replace(the_input(run), **changes)]))
    assert item.potential_saving == said


def test_waiting_promises_no_more_than_the_step() -> None:
    """A rank that recorded a part of each step only, or pauses besides, makes the mean step shorter than that."""
    waits, part = ([make_step(step, compute=10 * MS, communication=ms * MS) for step in (5, 6)] for ms in (150, 0))
    run = replace(run_with(), ranks=[make_rank(0, waits), make_rank(1, part)])
    context = loss_context(run, None)
    assert context is not None
    assert context.longest_wait_ns(75 * MS) == 150 * MS
    assert context.longest_step_ns == 180 * MS
