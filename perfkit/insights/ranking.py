"""Evaluate all insight rules and rank the results by potential saving."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from perfkit.errors import PluginError
from perfkit.insights.multi_run_rules import OPTION_RULES, SERIES_RULES
from perfkit.insights.registry import INSIGHT_RULES, plugin_rules
from perfkit.insights.rule import InsightDraft, Rule
from perfkit.insights.run_context import RunContext, run_context, stragglers_of
from perfkit.insights.run_rules import RULES
from perfkit.plugins import Registry
from perfkit.scaling.series import repeats
from perfkit.schema.common import Finding
from perfkit.schema.report import BESIDES_STEPS, Insight
from perfkit.schema.run import RunReport
from perfkit.schema.scaling import MultiRunSummary
from perfkit.whatif.changes import are_healthy_ranks

MAX_INSIGHTS: Final = 5
_CLOSE: Final = 1.05
"""Ratio of a predicted saving and a bound up to which they agree."""
_MISSED: Final = 0.5
"""Share of what late ranks cost below which a prediction without their delay has missed most of it."""


class Insights(NamedTuple):
    """The ranked insights of some runs, and findings about plug-in rules that failed."""

    insights: list[Insight]
    findings: list[Finding]


def find_insights(
    runs: Sequence[RunReport], multi_run: MultiRunSummary | None, registry: Registry[Any] = INSIGHT_RULES
) -> Insights:
    """Return the insights of `runs`, largest saving first; of each rule only the one with the largest.

    An insight without a saving casts doubt on the others and comes first. A plug-in rule that fails on any run
    costs one finding, and none of its insights are kept.
    """
    evaluator = _Evaluator((*RULES, *plugin_rules(registry)))
    best: dict[str, Insight] = {}
    for insight in (*_of_runs(runs, multi_run, evaluator), *(_of_multi_run(multi_run) if multi_run else ())):
        other = best.get(insight.rule)
        if other is None or _saving(insight) > _saving(other):
            best[insight.rule] = insight
    kept = [insight for insight in best.values() if insight.rule not in evaluator.failed]
    return Insights(sorted(kept, key=_saving, reverse=True)[:MAX_INSIGHTS], list(evaluator.failed.values()))


class _Evaluator:
    """Evaluates rules on runs and remembers the plug-ins that failed."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self.failed: dict[str, Finding] = {}

    def insights(self, context: RunContext) -> Iterator[Insight]:
        for rule in self._rules:
            if rule.name in self.failed:
                continue
            try:
                draft = rule.evaluate(context)
            except PluginError as error:
                message = f"{error}; its insights are left out"
                self.failed[rule.name] = Finding(code="insight_rule_failed", severity="warning", message=message)
                continue
            if draft is not None:
                insight = _with_prediction(_insight(rule.name, context.run.run, draft), context, draft)
                yield _within_step(insight, context)
                if rule.explains_all and not stragglers_of(context.run):
                    break


def _saving(insight: Insight) -> float:
    return float("inf") if insight.potential_saving_ns is None else insight.potential_saving_ns


def _of_runs(runs: Sequence[RunReport], multi_run: MultiRunSummary | None, evaluator: _Evaluator) -> Iterator[Insight]:
    """Yield the insights that most repeats of a configuration show, of the repeat with the median saving.

    The repeat with the largest saving would be an outlier.
    """
    for group in repeats(runs):
        by_rule: dict[str, list[Insight]] = defaultdict(list)
        contexts = [context for run in group if (context := run_context(run, multi_run))]
        for context in contexts:
            for insight in evaluator.insights(context):
                by_rule[insight.rule].append(insight)
        for several in by_rule.values():
            if 2 * len(several) > len(contexts):
                yield sorted(several, key=_saving)[(len(several) - 1) // 2]


def _of_multi_run(multi_run: MultiRunSummary) -> Iterator[Insight]:
    for series in multi_run.series:
        for rule in SERIES_RULES:
            for lost in series.lost:
                if draft := rule.evaluate(series, lost):
                    yield _insight(rule.name, series.name, draft)
    for comparison in multi_run.option_comparisons:
        for option_rule in OPTION_RULES:
            for row in comparison.rows[1:]:
                if draft := option_rule.evaluate(comparison, row):
                    yield _insight(option_rule.name, comparison.name, draft)


def _with_prediction(insight: Insight, context: RunContext, draft: InsightDraft) -> Insight:
    """Return the insight with the predicted saving, if there is one that does not contradict the bound.

    The graph may lack some of the steps that the bound is of, so that one may exceed the other a little. What late
    ranks cost was measured, step by step: a replay that finds less than half of it has missed what they delay.
    """
    bound_ns = insight.potential_saving_ns
    saving_ns = context.predicted_saving(draft.change) if draft.change else None
    limit_ns = (bound_ns or 0.0) * (context.spread(draft.category) if draft.category else 1.0)
    if draft.change is None or saving_ns is None or bound_ns is None or saving_ns > _CLOSE * limit_ns:
        return insight
    if are_healthy_ranks(draft.change) and saving_ns < _MISSED * bound_ns:
        return insight
    return replace(insight, potential_saving_ns=min(max(0.0, saving_ns), limit_ns), predicted_for=draft.change)


def _within_step(insight: Insight, context: RunContext) -> Insight:
    """Return the insight with a saving that is not more than the mean step, of which it is a part."""
    saving_ns = insight.potential_saving_ns
    if saving_ns is None or saving_ns <= context.longest_step_ns or insight.rule == BESIDES_STEPS:
        return insight
    return replace(insight, potential_saving_ns=context.longest_step_ns)


def _insight(rule: str, subject: str, draft: InsightDraft) -> Insight:
    return Insight(
        rule=rule,
        run=subject,
        sentence=draft.sentence,
        evidence=draft.evidence,
        recommendation=draft.recommendation,
        potential_saving_ns=draft.potential_saving_ns,
        only_finds_out=draft.only_finds_out,
    )
