"""Insight rules that installed packages add.

An entry point of the group `perfkit.insights` is a `Rule`. Plug-in rules are evaluated after the built-in ones. If
a rule fails, the report gets a finding instead of its insights.
"""

import math
from collections.abc import Iterator
from typing import Any, Final

from msgspec import convert
from msgspec.structs import asdict

from perfkit.insights.loss import Loss, Rule
from perfkit.insights.multi_run_rules import OPTION_RULES, SERIES_RULES
from perfkit.insights.run_context import RunContext
from perfkit.insights.run_rules import RULES
from perfkit.plugins import Registry, instance_of
from perfkit.records.facts import in_words

INSIGHT_RULES: Final[Registry[Any]] = Registry(
    "perfkit.insights",
    "insight rule",
    {},
    instance_of(Rule, "perfkit.insights.Rule"),
    reserved=[*(rule.name for rule in RULES), *SERIES_RULES, *OPTION_RULES],
)
"""Plug-in rules; the built-in ones are the tables that their names are reserved for."""


def plugin_rules(registry: Registry[Any]) -> Iterator[Rule]:
    """Yield the plug-in rules that can be loaded, each guarded so that a failure is a `PluginError`."""
    for name, rule in registry.load_plugins():
        yield _guarded(rule._replace(name=name), registry)


def _guarded(rule: Rule, registry: Registry[Any]) -> Rule:
    def evaluate(context: RunContext) -> Loss | None:
        with registry.guarded(rule.name, f"failed on {context.run.run}"):
            return _checked(rule, rule.evaluate(context))

    return rule._replace(evaluate=evaluate)


def _checked(rule: Rule, loss: Loss | None) -> Loss | None:
    """Return the loss with its types checked, because the report that it goes into is a file format.

    Raises:
        ValidationError: a field has another type.
        ValueError: a figure is not finite, and JSON cannot hold it.
        KeyError: a fact has no words, or lacks a value that they need.
    """
    if loss is None:
        return None
    if not isinstance(loss, Loss):
        raise TypeError(f"returned a {type(loss).__name__}, not a Loss")
    checked = convert(asdict(loss), Loss)
    for facts in (checked.facts, checked.remedy):
        in_words(facts, rule.words or {})
    figures = [*checked.evidence.values(), checked.per_step_ns or 0.0]
    if not all(map(math.isfinite, figures)):
        raise ValueError(f"returned figures that are not finite: {figures}")
    return checked
