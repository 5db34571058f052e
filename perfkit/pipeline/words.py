"""Turn what analysis and rules found into the sentences of a report."""

from collections.abc import Sequence
from typing import NamedTuple

from perfkit.engine.ledger.verdict import Judgement
from perfkit.pipeline.losses import Ranked, find_losses
from perfkit.records.common import Finding
from perfkit.records.facts import fact
from perfkit.records.report import Insight
from perfkit.records.run import RunReport, Verdict
from perfkit.records.scaling import MultiRunSummary
from perfkit.report.wording import REMEDIES, SENTENCES, clauses
from perfkit.report.wording.findings import word_all
from perfkit.report.wording.ledger import headline, loses, paused
from perfkit.tables.words import in_words


class Insights(NamedTuple):
    """The ranked insights of some runs, and findings about subjects of packages that failed."""

    insights: list[Insight]
    findings: list[Finding]


def find_insights(runs: Sequence[RunReport], multi_run: MultiRunSummary | None) -> Insights:
    """Return the largest losses of `runs` in words, see `find_losses`."""
    ranked, failed = find_losses(runs, multi_run)
    return Insights([insight(one) for one in ranked], word_all(failed))


def insight(one: Ranked) -> Insight:
    loss = one.loss
    return Insight(
        rule=one.rule,
        run=one.run,
        row=one.row.cause if one.row else None,
        sentence=_sentence(one),
        evidence=loss.evidence,
        recommendation=in_words(loss.remedy, one.words or REMEDIES),
        potential_saving_ns=one.saving_ns,
        predicted_for=one.predicted_for,
        only_finds_out=loss.only_finds_out,
    )


def _sentence(one: Ranked) -> str:
    why = in_words(one.loss.facts, one.words or SENTENCES)
    if one.row is None:
        return why
    return loses(one.row, why, sized=one.saving_ns is None or one.loss.only_finds_out)


def verdict(found: Judgement) -> Verdict:
    if found.pauses is not None:
        row = found.pauses.row
        sentence = paused(row.phase, row.caller, found.pauses.share)
        return Verdict(bound=found.bound, share=found.pauses.share, sentence=sentence)
    if found.row is None:
        return Verdict(bound=found.bound, share=0.0, sentence=clauses(((fact("no_verdict", why=found.why),),)))
    return Verdict(bound=found.bound, share=found.row.share, sentence=headline(found.row, found.bound))
