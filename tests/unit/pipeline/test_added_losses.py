"""Losses of subjects that packages add: ranked with the others, and each failure costs one finding."""

from typing import Any

import pytest

from perfkit.engine.losses import Loss, LossContext, Rules, fact
from perfkit.engine.subject import Subject
from perfkit.pipeline.words import Insights, find_insights
from perfkit.subjects import table
from tests.support.reports.report_builders import MS
from tests.support.reports.scaling_builders import make_ranks, make_scaled

WORDS = {"computes": "it computes for {ns:duration}", "buy": "a faster device"}


def loss(saving_ns: Any = 3e6, **values: Any) -> Loss:
    return Loss(cause="busy", facts=(fact("computes", **values),), remedy=(fact("buy"),), per_step_ns=saving_ns)


def busy(context: LossContext) -> Loss | None:
    return loss(ns=context.exposed_ns["compute"]) if context.share(context.exposed_ns["compute"]) > 0.5 else None


def broken(_: LossContext) -> Loss:
    raise KeyError("peak")


BUSY: Rules = {"busy": busy}
MUCH: Rules = {"much": lambda _: loss(7e8, ns=0)}
BROKEN: Rules = {"busy": busy, "broken": broken}
TEXT: Any = {"text": lambda _: "it computes"}
TYPES: Rules = {"types": lambda _: loss("much", ns=0)}
WORDLESS: Rules = {"wordless": lambda _: Loss(cause="busy", facts=(fact("idles"),), remedy=(), per_step_ns=1.0)}
VALUELESS: Rules = {"valueless": lambda _: loss()}


def evaluate(monkeypatch: pytest.MonkeyPatch, rules: str, runs: int = 1) -> Insights:
    """Return the insights of runs that are idle for 20 ms per step, with a subject that a package adds."""
    subject = Subject(losses=f"{__name__}:{rules}", words=WORDS)
    monkeypatch.setattr(table, "_added", lambda: (("mine", subject),))
    monkeypatch.setattr(table.SUBJECTS, "origin", lambda _: "mypackage 1.2")
    parts = [{"compute": 80 * MS, "communication": 0, "data_loading": 0, "overhead": 20 * MS}]
    several = [
        make_scaled(1, 100, ranks=make_ranks(parts), cross_rank=None, efficiency=None, name=f"run{n}", workload=f"w{n}")
        for n in range(runs)
    ]
    return find_insights(several, None)


def test_an_added_loss_is_ranked_with_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluate(monkeypatch, "BUSY")
    assert [insight.rule for insight in found.insights] == ["host", "busy"]
    assert (found.insights[1].sentence, found.insights[1].recommendation) == (
        "it computes for 80.0 ms",
        "a faster device",
    )
    assert found.findings == []


def test_no_rule_promises_more_than_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluate(monkeypatch, "MUCH")
    assert [insight.potential_saving_ns for insight in found.insights] == [100 * MS, 20 * MS]


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("BROKEN", "KeyError: 'peak'"),
        ("TEXT", "TypeError: text returned a str, not a Loss"),
        ("TYPES", "ValidationError: Expected `float | null`, got `str`"),
        ("WORDLESS", "KeyError: 'idles'"),
        ("VALUELESS", "KeyError: 'ns'"),
        ("ABSENT", f"AttributeError: module '{__name__}' has no attribute 'ABSENT'"),
    ],
)
def test_a_subject_whose_losses_fail_costs_one_finding(rules: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluate(monkeypatch, rules, runs=2)
    assert [insight.rule for insight in found.insights] == ["host"]
    (finding,) = found.findings
    assert (finding.code, finding.severity) == ("subject_failed", "warning")
    assert finding.message.startswith(f"subject 'mine' of mypackage 1.2 failed on run0: {why}")


def test_errors_of_perfkits_own_rules_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.subjects.idle.losses.LOSSES", {"host": broken})
    with pytest.raises(KeyError):
        evaluate(monkeypatch, "BUSY")
