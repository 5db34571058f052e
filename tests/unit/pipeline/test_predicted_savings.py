"""Recommendations promise what a replay predicts, but never more than the bound; without a prediction the bound."""

from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.engine.losses.context import loss_context
from perfkit.pipeline.words import find_insights
from perfkit.records.per_run.whatif import PredictedSaving
from perfkit.records.report import BESIDES_STEPS, Insight, Report
from perfkit.records.run import RunReport
from perfkit.report.content.answer import run_answer
from perfkit.report.content.report import document
from tests.support.reports.report_builders import MS, make_loading, make_rank, make_step
from tests.support.reports.scaling_builders import make_ranks, make_scaled

PARTS = {"compute": 50 * MS, "communication": 0, "data_loading": 30 * MS, "overhead": 20 * MS}


def run_with(*, plain_ms: float = 100, **savings_ms: float) -> RunReport:
    """Return a run of 100 ms under the profiler with input and idle time, and predictions for it."""
    changes = {"input": "input=0", "unknown": "idle:unknown=0"}
    predicted = [PredictedSaving(change=changes[name], saving_ns=ms * MS) for name, ms in savings_ms.items()]
    fields: dict[str, Any] = {"cross_rank": None, "efficiency": None, "dimensions": None}
    return make_scaled(
        2, plain_ms, ranks=make_ranks([PARTS] * 2), data_loading=make_loading(), predicted_savings=predicted, **fields
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
    assert "up to 12.3 ms per step, predicted by replaying the steps with input=0" in shown(run_with(input=12.3))


def test_advice_that_only_leads_to_the_reason_promises_nothing() -> None:
    """More traces or annotations make no step shorter, whatever a replay without the time predicts."""
    one = replace(the_input(run_with(input=12.3)), only_finds_out=True)
    (item,) = document(Report(perfkit_version="", runs=[run_with()], insights=[one]), 10).advice
    assert item.potential_saving == "concerns 12.3 ms per step"


def test_what_is_replayed_in_full_is_no_upper_bound() -> None:
    """To take a delay away is what is recommended; of input or transfers something is left."""
    one = replace(the_input(run_with(input=12.3)), predicted_for="rank1=healthy")
    report = Report(perfkit_version="", runs=[run_with()], insights=[one])
    (item,) = document(report, 10).advice
    assert item.potential_saving == "would save 12.3 ms per step, predicted by replaying the steps with rank1=healthy"


@pytest.mark.parametrize(
    ("plain_ms", "savings_ms", "said"),
    [
        (100, {}, "up to 30.0 ms per step"),
        (30, {}, "up to 30.0 ms per step"),
        (29, {}, "up to 30.0 ms of the mean profiled step of 100 ms"),
        (20, {"input": 19.5}, "up to 19.5 ms per step, predicted by replaying the steps with input=0"),
        (
            20,
            {"input": 25},
            "up to 25.0 ms of the mean profiled step of 100 ms, predicted by replaying the steps with input=0",
        ),
    ],
)
def test_a_saving_above_the_step_time_without_the_profiler_names_the_step_that_it_is_of(
    plain_ms: float, savings_ms: dict[str, float], said: str
) -> None:
    run = run_with(plain_ms=plain_ms, **savings_ms)
    assert said in shown(run)
    assert f"step {plain_ms:.3g}" in run_answer(run).facts


@pytest.mark.parametrize(("slow_ms", "said"), [(235, "of the mean profiled step of 95.0 ms"), (25, "per step")])
def test_a_saving_above_the_median_that_a_slow_step_raised_names_the_mean(slow_ms: int, said: str) -> None:
    steps = [make_step(number, **PARTS | {"compute": 0, "data_loading": 5 * MS}, hidden=0) for number in range(2)]
    steps.append(make_step(2, **PARTS | {"compute": 0, "data_loading": (slow_ms - 20) * MS}, hidden=0))
    run = replace(run_with(), step_times=None, ranks=[make_rank(0, steps)])
    assert shown(run)[0].endswith(said)


def test_pauses_are_besides_the_steps_and_may_take_longer() -> None:
    one = replace(the_input(run_with()), rule=BESIDES_STEPS, potential_saving_ns=900 * MS)
    (item,) = document(Report(perfkit_version="", runs=[run_with()], insights=[one]), 10).advice
    assert item.potential_saving == "up to 900 ms per step"


@pytest.mark.parametrize(
    ("predicted_ms", "promised_ms", "said"), [(31, 30, "input=0"), (45, 30, None), (-2, 0, "input=0")]
)
def test_no_prediction_promises_more_than_the_bound_or_less_than_nothing(
    predicted_ms: float, promised_ms: float, said: str | None
) -> None:
    one = the_input(run_with(input=predicted_ms))
    assert (one.potential_saving_ns, one.predicted_for) == (promised_ms * MS, said)


def test_recommendations_are_ranked_by_what_is_predicted() -> None:
    rules = [one.rule for one in find_insights([run_with()], None).insights]
    assert rules[0] == "input"
    fewer = [one.rule for one in find_insights([run_with(input=0.5)], None).insights]
    assert fewer[-1] == "input"
    assert shown(run_with(input=0))[-1].startswith("would save nothing, predicted")


@pytest.mark.parametrize(("subject", "each_ms"), [(None, 101), ("series", 60)])
def test_no_overlap_is_said_of_the_first_saving_or_of_comparisons(subject: str | None, each_ms: int) -> None:
    """A bound may be a little more than the mean step; and comparisons of runs are no parts of one step."""
    run = run_with()
    several = [
        Insight(rule=rule, run=subject or run.run, sentence="", evidence={}, recommendation="", potential_saving_ns=ns)
        for rule, ns in (("waiting", each_ms * MS), ("host", 0 if subject is None else 5 * MS))
    ]
    items = document(Report(perfkit_version="", runs=[run], insights=several), 10).advice
    assert not any("same as above" in item.potential_saving for item in items)


@pytest.mark.parametrize(("each_ms", "overlap"), [(50, False), (60, True)])
def test_savings_that_cannot_add_up_are_said_to_overlap(each_ms: int, overlap: bool) -> None:
    """Of a step of 100 ms; what one rank is idle for, another waits for."""
    run = run_with()
    several = [
        Insight(rule=rule, run=run.run, sentence="", evidence={}, recommendation="", potential_saving_ns=each_ms * MS)
        for rule in ("waiting", "host")
    ]
    first, second = document(Report(perfkit_version="", runs=[run], insights=several), 10).advice
    assert first.potential_saving == f"up to {each_ms}.0 ms per step"
    assert second.potential_saving.endswith(", in part the same as above") is overlap


def test_waiting_promises_no_more_than_the_step() -> None:
    """A rank that recorded a part of each step only, or pauses besides, makes the mean step shorter than that."""
    waits, part = ([make_step(step, compute=10 * MS, communication=ms * MS) for step in (5, 6)] for ms in (150, 0))
    run = replace(run_with(), ranks=[make_rank(0, waits), make_rank(1, part)])
    context = loss_context(run, None)
    assert context is not None
    assert context.longest_wait_ns(75 * MS) == 150 * MS
    assert context.longest_step_ns == 180 * MS
