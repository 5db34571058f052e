"""Insight rules by name: the built-in ones, and those that installed packages add.

An entry point of the group `perfkit.insights` is a `Rule`. Plug-in rules are evaluated after the built-in ones. One
that raises, or returns something other than an insight, costs one finding and its own insights.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import convert

from perfkit.errors import PluginError
from perfkit.insights.rule import InsightDraft, Rule
from perfkit.insights.run_context import RunContext
from perfkit.plugins import Registry

_RUN_RULES: Final = "perfkit.insights.run_rules"
_MULTI_RUN_RULES: Final = "perfkit.insights.multi_run_rules"
_BUILTIN: Final[Mapping[str, str]] = {
    "oversubscribed": f"{_RUN_RULES}:OVERSUBSCRIBED",
    "waiting": f"{_RUN_RULES}:WAITING",
    "transfer": f"{_RUN_RULES}:TRANSFER",
    "input": f"{_RUN_RULES}:INPUT",
    "host": f"{_RUN_RULES}:HOST",
    "copies": f"{_RUN_RULES}:COPIES",
    "computation_scaling": f"{_MULTI_RUN_RULES}:COMPUTATION_SCALING",
    "option": f"{_MULTI_RUN_RULES}:OPTION",
}


def is_rule(value: Any) -> bool:
    """Return whether `value` can be a plug-in rule."""
    return isinstance(value, Rule) and callable(value.evaluate)


INSIGHT_RULES: Final[Registry[Any]] = Registry("perfkit.insights", "insight rule", _BUILTIN, is_rule)


def plugin_rules(registry: Registry[Any]) -> Iterator[Rule]:
    """Yield the plug-in rules that can be loaded, each guarded so that a failure is a `PluginError`."""
    for name, rule in registry.load_plugins():
        yield _guarded(rule._replace(name=name), f"insight rule {name!r} of {registry.origin(name)}")


def _guarded(rule: Rule, label: str) -> Rule:
    def evaluate(context: RunContext) -> InsightDraft | None:
        try:
            return _checked(rule.evaluate(context))
        except Exception as error:  # foreign code: whatever is wrong with it is one finding
            raise PluginError(f"{label} failed on {context.run.run}: {type(error).__name__}: {error}") from error

    return rule._replace(evaluate=evaluate)


def _checked(draft: InsightDraft | None) -> InsightDraft | None:
    """Return the draft with its types checked, because the report that it goes into is a file format.

    Raises:
        ValidationError: a field has another type.
    """
    if draft is None:
        return None
    if not isinstance(draft, InsightDraft):
        raise TypeError(f"returned a {type(draft).__name__}, not an InsightDraft")
    checked: InsightDraft = convert(tuple(draft), InsightDraft)
    return checked
