"""At most five sentences on what would give time back, by how much it would."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from perfkit.insights.multi_run_rules import AXIS_RULES, SERIES_RULES
from perfkit.insights.run_context import RunContext, run_context
from perfkit.insights.run_rules import RULES, InsightDraft
from perfkit.scaling.series import repeats
from perfkit.schema.report import Insight
from perfkit.schema.run import RunReport
from perfkit.schema.scaling import MultiRunSummary

MOST: Final = 5


def insights(runs: Sequence[RunReport], together: MultiRunSummary | None) -> list[Insight]:
    """Return what rules claim of `runs`: of each rule what gives back most, and what casts doubt on the rest first."""
    best: dict[str, Insight] = {}
    for found in (*_of_runs(runs, together), *(_of_several(together) if together else ())):
        known = best.get(found.rule)
        if known is None or _worth(found) > _worth(known):
            best[found.rule] = found
    return sorted(best.values(), key=_worth, reverse=True)[:MOST]


def _worth(insight: Insight) -> float:
    return float("inf") if insight.potential_saving_ns is None else insight.potential_saving_ns


def _of_runs(runs: Sequence[RunReport], together: MultiRunSummary | None) -> Iterator[Insight]:
    """Yield what rules claim of most repeats of a configuration, by the middle one: the worst would be chance."""
    for alike in repeats(runs):
        claimed: dict[str, list[Insight]] = defaultdict(list)
        judged = [known for run in alike if (known := run_context(run, together))]
        for known in judged:
            for insight in _of_run(known):
                claimed[insight.rule].append(insight)
        for several in claimed.values():
            if 2 * len(several) > len(judged):
                yield sorted(several, key=_worth)[(len(several) - 1) // 2]


def _of_run(known: RunContext) -> Iterator[Insight]:
    for rule in RULES:
        claim = rule.claims(known)
        if claim is not None:
            yield _insight(rule.name, known.run.run, claim)
            if rule.explains_all:
                break


def _of_several(together: MultiRunSummary) -> Iterator[Insight]:
    for series in together.series:
        for rule in SERIES_RULES:
            for lost in series.lost:
                if claim := rule.claims(series, lost):
                    yield _insight(rule.name, series.name, claim)
    for axis in together.option_comparisons:
        for axis_rule in AXIS_RULES:
            for row in axis.rows[1:]:
                if claim := axis_rule.claims(axis, row):
                    yield _insight(axis_rule.name, axis.name, claim)


def _insight(rule: str, about: str, claim: InsightDraft) -> Insight:
    return Insight(
        rule=rule,
        run=about,
        sentence=claim.sentence,
        evidence=claim.evidence,
        recommendation=claim.recommendation,
        potential_saving_ns=claim.potential_saving_ns,
    )
