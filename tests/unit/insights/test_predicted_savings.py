"""Recommendations promise what a replay predicts, but never more than the bound; without a prediction the bound."""

from typing import Any

import pytest

from perfkit.insights.ranking import find_insights
from perfkit.report.content.report import document
from perfkit.schema.cross_rank import Straggler
from perfkit.schema.per_run.whatif import PredictedSaving
from perfkit.schema.report import Insight, Report
from perfkit.schema.run import RunReport
from perfkit.whatif.savings import recommended_changes
from tests.support.reports.report_builders import MS, make_across, make_loading
from tests.support.reports.scaling_builders import make_ranks, make_scaled

PARTS = {"compute": 50 * MS, "communication": 0, "data_loading": 30 * MS, "overhead": 20 * MS}


def run_with(**savings_ms: float) -> RunReport:
    """Return a run of 100 ms with input and idle time, and predictions for it."""
    changes = {"input": "input=0", "unknown": "idle:unknown=0"}
    predicted = [PredictedSaving(change=changes[name], saving_ns=ms * MS) for name, ms in savings_ms.items()]
    fields: dict[str, Any] = {"cross_rank": None, "efficiency": None, "dimensions": None}
    return make_scaled(
        2, 100, ranks=make_ranks([PARTS] * 2), data_loading=make_loading(), predicted_savings=predicted, **fields
    )


def the_input(run: RunReport) -> Insight:
    (one,) = [insight for insight in find_insights([run], None).insights if insight.rule == "input"]
    return one


def shown(run: RunReport) -> list[str]:
    report = Report(perfkit_version="", runs=[run], insights=find_insights([run], None).insights)
    return [item.potential_saving for item in document(report, 10).advice]


def test_without_a_prediction_the_bound_stays() -> None:
    one = the_input(run_with())
    assert (one.potential_saving_ns, one.predicted_for) == (30 * MS, None)
    assert shown(run_with())[0] == "up to 30.0 ms per step"


def test_a_prediction_replaces_the_bound() -> None:
    one = the_input(run_with(input=12.3))
    assert (one.potential_saving_ns, one.predicted_for) == (12.3 * MS, "input=0")
    assert "would save 12.3 ms per step, predicted by replaying the steps with input=0" in shown(run_with(input=12.3))


@pytest.mark.parametrize(
    ("predicted_ms", "promised_ms", "said"), [(31, 30, "input=0"), (45, 30, None), (-2, 0, "input=0")]
)
def test_no_prediction_promises_more_than_the_bound_or_less_than_nothing(
    predicted_ms: float, promised_ms: float, said: str | None
) -> None:
    one = the_input(run_with(input=predicted_ms))
    assert (one.potential_saving_ns, one.predicted_for) == (promised_ms * MS, said)


@pytest.mark.parametrize(("every", "in_turns", "tried"), [(1, False, True), (2, True, True), (3, False, False)])
def test_a_delay_of_some_steps_is_not_judged_by_the_median_step(every: int, in_turns: bool, tried: bool) -> None:
    shared: dict[str, Any] = {"lag_ns": 30 * MS, "share": 0.3, "gain_ns": 5 * MS}
    late = Straggler(
        rank=1, category="overhead", every=every, in_turns=in_turns, steps_late=4, steps_last=4, steps=12, **shared
    )
    across = make_across(stragglers=[late], stragglers_gain_ns=5 * MS)
    run = make_scaled(2, 100, ranks=make_ranks([PARTS] * 2), cross_rank=across)
    assert ("rank1=healthy" in recommended_changes(run)) == tried


def test_recommendations_are_ranked_by_what_is_predicted() -> None:
    rules = [one.rule for one in find_insights([run_with()], None).insights]
    assert rules[0] == "input"
    fewer = [one.rule for one in find_insights([run_with(input=0.5)], None).insights]
    assert fewer[-1] == "input"
    assert shown(run_with(input=0))[-1].startswith("would save nothing, predicted")
