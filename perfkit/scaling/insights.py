"""At most five sentences on what would give time back, by how much it would."""

from collections.abc import Iterator, Sequence
from typing import Final

from perfkit.model import Insight, RunReport, Scaling
from perfkit.scaling.facts import facts
from perfkit.scaling.rules import AXIS_RULES, RULES, SERIES_RULES, Claim

MOST: Final = 5


def insights(runs: Sequence[RunReport], together: Scaling | None) -> list[Insight]:
    """Return what rules claim of `runs`: of each rule what gives back most, and what casts doubt on the rest first."""
    best: dict[str, Insight] = {}
    for found in (*_of_runs(runs, together), *(_of_several(together) if together else ())):
        known = best.get(found.rule)
        if known is None or _worth(found) > _worth(known):
            best[found.rule] = found
    return sorted(best.values(), key=_worth, reverse=True)[:MOST]


def _worth(insight: Insight) -> float:
    return float("inf") if insight.gives_back_ns is None else insight.gives_back_ns


def _of_runs(runs: Sequence[RunReport], together: Scaling | None) -> Iterator[Insight]:
    for run in runs:
        known = facts(run, together)
        for rule in RULES if known else ():
            claim = rule.claims(known) if known else None
            if claim is not None:
                yield _insight(rule.name, run.run, claim)
                if rule.explains_all:
                    break


def _of_several(together: Scaling) -> Iterator[Insight]:
    for series in together.series:
        for rule in SERIES_RULES:
            for lost in series.lost:
                if claim := rule.claims(series, lost):
                    yield _insight(rule.name, series.name, claim)
    for axis in together.axes:
        for axis_rule in AXIS_RULES:
            for row in axis.rows[1:]:
                if claim := axis_rule.claims(axis, row):
                    yield _insight(axis_rule.name, axis.name, claim)


def _insight(rule: str, about: str, claim: Claim) -> Insight:
    return Insight(
        rule=rule,
        run=about,
        sentence=claim.sentence,
        evidence=claim.evidence,
        next_step=claim.next_step,
        gives_back_ns=claim.gives_back_ns,
    )
