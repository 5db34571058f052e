"""Advice on unequal experts: only where others are seen to wait."""

from typing import Any

import pytest

from perfkit.records.report import Insight
from tests.support.reports.report_builders import MS, make_divided
from tests.unit.pipeline.test_insights import found, run_of


def said(**changes: Any) -> Insight | None:
    row = make_divided(
        **({"dimension": "ep", "imbalance": 1.5, "wait_ns": 10.0 * MS, "exposed_ns": 20.0 * MS} | changes)
    )
    return next((one for one in found(run_of({}, {}, divided_work=[row])) if one.rule == "expert_imbalance"), None)


def test_waiting_for_the_fullest_rank() -> None:
    insight = said()
    assert insight is not None
    assert "get 1.50 times the mean tokens, and ranks wait 10.0 ms per step" in insight.sentence
    assert insight.potential_saving_ns == 10 * MS


def test_no_more_is_promised_than_is_exposed() -> None:
    insight = said(exposed_ns=7.0 * MS)
    assert insight is not None
    assert insight.potential_saving_ns == 7 * MS


@pytest.mark.parametrize(
    "changes",
    [
        {"imbalance": 1.1},
        {"imbalance": None},
        {"wait_ns": 2.0 * MS},
        {"wait_ns": None},
        {"dimension": "tp"},
        {"exposed_ns": 0.0},
    ],
)
def test_nothing_is_said_of_equal_or_hidden_ones(changes: dict[str, Any]) -> None:
    assert said(**changes) is None
