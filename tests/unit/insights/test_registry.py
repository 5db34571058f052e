"""Insight rules from plug-ins: evaluated after the built-in ones, and each failure costs one finding."""

from pathlib import Path
from typing import Any

import pytest

from perfkit.insights.multi_run_rules import OPTION_RULES, SERIES_RULES
from perfkit.insights.registry import INSIGHT_RULES
from perfkit.insights.run_rules import RULES
from perfkit.pipeline.words import Insights, find_insights
from perfkit.plugins import Registry
from tests.support.reports.report_builders import MS
from tests.support.reports.scaling_builders import make_ranks, make_scaled

SOURCE = """
from perfkit.insights import Loss, Rule, RunContext, fact

WORDS = {"computes": "it computes for {ns:duration}", "buy": "a faster device"}

def loss(saving_ns=3e6, **values):
    return Loss(cause="busy", facts=(fact("computes", **values),), remedy=(fact("buy"),), per_step_ns=saving_ns)

def busy(context: RunContext) -> Loss | None:
    compute_ns = context.exposed_ns["compute"]
    if context.share(compute_ns) < 0.5:
        return None
    return Loss(
        cause="busy",
        facts=(fact("computes", ns=compute_ns),),
        remedy=(fact("buy"),),
        per_step_ns=3e6,
        evidence={"compute_ns": compute_ns},
    )

def broken(context):
    raise KeyError("peak")

BUSY, BROKEN = Rule("any name", busy, words=WORDS), Rule("broken", broken)
TEXT = Rule("text", lambda context: "it computes")
TYPES = Rule("types", lambda context: loss("much", ns=0), words=WORDS)
MUCH = Rule("much", lambda context: loss(7e8, ns=0), words=WORDS)
WORDLESS = Rule("wordless", lambda context: loss(ns=0))
VALUELESS = Rule("valueless", lambda context: loss(), words=WORDS)
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, entries: dict[str, str], package: str) -> Registry[Any]:
    """Install a package with rules as pip would leave it."""
    monkeypatch.syspath_prepend(str(folder))
    (folder / f"{package}.py").write_text(SOURCE)
    metadata = folder / f"{package}-1.2.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    lines = "\n".join(f"{name} = {package}:{attribute}" for name, attribute in entries.items())
    (metadata / "entry_points.txt").write_text(f"[perfkit.insights]\n{lines}\n")
    return Registry("perfkit.insights", "insight rule", {}, INSIGHT_RULES._find_problem, INSIGHT_RULES._reserved)


def evaluate(registry: Registry[Any], runs: int = 1) -> Insights:
    parts = [{"compute": 80 * MS, "communication": 0, "data_loading": 0, "overhead": 20 * MS}]
    several = [
        make_scaled(1, 100, ranks=make_ranks(parts), cross_rank=None, efficiency=None, name=f"run{n}", workload=f"w{n}")
        for n in range(runs)
    ]
    return find_insights(several, None, registry)


def test_a_plugin_rule_is_ranked_with_the_built_in_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluate(install(tmp_path, monkeypatch, {"busy": "BUSY"}, "pk_busy"))
    assert [insight.rule for insight in found.insights] == ["host", "busy"]
    assert found.insights[1].evidence == {"compute_ns": 80e6}
    assert (found.insights[1].sentence, found.insights[1].recommendation) == (
        "it computes for 80.0 ms",
        "a faster device",
    )
    assert found.findings == []


def test_no_rule_promises_more_than_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluate(install(tmp_path, monkeypatch, {"much": "MUCH"}, "pk_much"))
    assert [insight.potential_saving_ns for insight in found.insights] == [100 * MS, 20 * MS]


@pytest.mark.parametrize(
    ("attribute", "why"),
    [
        ("BROKEN", "KeyError: 'peak'"),
        ("TEXT", "TypeError: returned a str, not a Loss"),
        ("TYPES", "ValidationError: Expected `float | null`, got `str`"),
        ("WORDLESS", "KeyError: 'computes'"),
        ("VALUELESS", "KeyError: 'ns'"),
    ],
)
def test_a_rule_that_fails_costs_one_finding(
    attribute: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = f"pk_{attribute.lower()}"
    found = evaluate(install(tmp_path, monkeypatch, {"odd": attribute, "busy": "BUSY"}, package), runs=2)
    assert [insight.rule for insight in found.insights] == ["host", "busy"]
    (finding,) = found.findings
    assert (finding.code, finding.severity) == ("insight_rule_failed", "warning")
    assert finding.message.startswith(f"insight rule 'odd' of {package} 1.2 failed on run0: {why}")


def test_builtin_rules_are_not_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    def boom(context: object) -> None:
        raise ZeroDivisionError

    rules = (RULES[0]._replace(evaluate=boom),)
    monkeypatch.setattr("perfkit.insights.ranking.RULES", rules)
    with pytest.raises(ZeroDivisionError):
        evaluate(INSIGHT_RULES)


def test_names_of_built_in_rules_are_taken() -> None:
    assert {*(rule.name for rule in RULES), *SERIES_RULES, *OPTION_RULES} == INSIGHT_RULES._reserved
