"""Evaluate all insight rules and rank the results by potential saving."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from perfkit.engine.whatif.changes import are_healthy_ranks
from perfkit.errors import PluginError
from perfkit.insights.loss import Loss, Rule
from perfkit.insights.multi_run_rules import OPTION_RULES, SERIES_RULES
from perfkit.insights.registry import INSIGHT_RULES, plugin_rules
from perfkit.insights.run_context import RunContext, run_context, stragglers_of
from perfkit.insights.run_rules import RULES
from perfkit.plugins import Registry
from perfkit.records.aggregate import MAJORITY
from perfkit.records.common import Finding
from perfkit.records.facts import Words
from perfkit.records.report import BESIDES_STEPS
from perfkit.records.run import RunReport
from perfkit.records.scaling import MultiRunSummary
from perfkit.subjects.scaling.series import repeats

MAX_INSIGHTS: Final = 5
_CLOSE: Final = 1.05
"""Ratio of a predicted saving and a bound up to which they agree."""


class Ranked(NamedTuple):
    """A loss that a rule found in a run or a series."""

    rule: str
    subject: str
    """Name of the run or the series."""
    loss: Loss
    """With the saving that was predicted, if any, in place of its bound."""
    predicted_for: str | None = None
    """The change that the saving was predicted for."""
    words: Words | None = None
    """Of a plug-in's rule."""


class Losses(NamedTuple):
    """The ranked losses of some runs, and findings about plug-in rules that failed."""

    ranked: list[Ranked]
    findings: list[Finding]


def find_losses(
    runs: Sequence[RunReport], multi_run: MultiRunSummary | None, registry: Registry[Any] = INSIGHT_RULES
) -> Losses:
    """Return the losses of `runs`, largest saving first; of each rule only the one with the largest.

    One without a saving casts doubt on the others and comes first. A plug-in rule that fails on any run costs one
    finding, and none of its losses are kept.
    """
    evaluator = _Evaluator((*RULES, *plugin_rules(registry)))
    best: dict[str, Ranked] = {}
    for one in (*_of_runs(runs, multi_run, evaluator), *(_of_multi_run(multi_run) if multi_run else ())):
        other = best.get(one.rule)
        if other is None or _saving(one) > _saving(other):
            best[one.rule] = one
    kept = [one for one in best.values() if one.rule not in evaluator.failed]
    return Losses(sorted(kept, key=_saving, reverse=True)[:MAX_INSIGHTS], list(evaluator.failed.values()))


class _Evaluator:
    """Evaluates rules on runs and remembers the plug-ins that failed."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self.failed: dict[str, Finding] = {}

    def losses(self, context: RunContext) -> Iterator[Ranked]:
        for rule in self._rules:
            if rule.name in self.failed:
                continue
            try:
                loss = rule.evaluate(context)
            except PluginError as error:
                message = f"{error}; its insights are left out"
                self.failed[rule.name] = Finding(code="insight_rule_failed", severity="warning", message=message)
                continue
            if loss is not None:
                found = Ranked(rule.name, context.run.run, loss, words=rule.words)
                yield _within_step(_with_prediction(found, context), context)
                if rule.explains_all and not stragglers_of(context.run):
                    break


def _saving(one: Ranked) -> float:
    return float("inf") if one.loss.per_step_ns is None else one.loss.per_step_ns


def _of_runs(runs: Sequence[RunReport], multi_run: MultiRunSummary | None, evaluator: _Evaluator) -> Iterator[Ranked]:
    """Yield the losses that most repeats of a configuration show, of the repeat with the median saving.

    The repeat with the largest saving would be an outlier.
    """
    for group in repeats(runs):
        by_rule: dict[str, list[Ranked]] = defaultdict(list)
        contexts = [context for run in group if (context := run_context(run, multi_run))]
        for context in contexts:
            for one in evaluator.losses(context):
                by_rule[one.rule].append(one)
        for several in by_rule.values():
            if 2 * len(several) > len(contexts):
                yield sorted(several, key=_saving)[(len(several) - 1) // 2]


def _of_multi_run(multi_run: MultiRunSummary) -> Iterator[Ranked]:
    for series, (name, evaluate) in product(multi_run.series, SERIES_RULES.items()):
        for lost in series.lost:
            if loss := evaluate(series, lost):
                yield Ranked(name, series.name, loss)
    for comparison, (name, compare) in product(multi_run.option_comparisons, OPTION_RULES.items()):
        for row in comparison.rows[1:]:
            if loss := compare(comparison, row):
                yield Ranked(name, comparison.name, loss)


def _with_prediction(one: Ranked, context: RunContext) -> Ranked:
    """Return the loss with the predicted saving, if there is one that does not contradict the bound.

    The graph may lack some of the steps that the bound is of, so that one may exceed the other a little. What late
    ranks cost was measured, step by step: a replay that finds less than half of it has missed what they delay.
    """
    change, bound_ns, category = one.loss.change, one.loss.per_step_ns, one.loss.category
    saving_ns = context.predicted_saving(change) if change else None
    limit_ns = (bound_ns or 0.0) * (context.spread(category) if category else 1.0)
    if change is None or saving_ns is None or bound_ns is None or saving_ns > _CLOSE * limit_ns:
        return one
    if are_healthy_ranks(change) and saving_ns < MAJORITY * bound_ns:
        return one
    return one._replace(loss=replace(one.loss, per_step_ns=min(max(0.0, saving_ns), limit_ns)), predicted_for=change)


def _within_step(one: Ranked, context: RunContext) -> Ranked:
    """Return the loss with a saving that is not more than the mean step, of which it is a part."""
    saving_ns = one.loss.per_step_ns
    if saving_ns is None or saving_ns <= context.longest_step_ns or one.rule == BESIDES_STEPS:
        return one
    return one._replace(loss=replace(one.loss, per_step_ns=context.longest_step_ns))
