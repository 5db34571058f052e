"""Insight rules: what a rule is, and what it returns."""

from collections.abc import Callable
from typing import NamedTuple

from perfkit.insights.run_context import RunContext
from perfkit.schema.common import Category


class InsightDraft(NamedTuple):
    """What a rule found in one run."""

    sentence: str
    """One sentence: what takes the time, and how much of it."""
    evidence: dict[str, float]
    """The figures it rests on, by name; times in ns, shares as fractions of one."""
    recommendation: str
    """What to try."""
    potential_saving_ns: float | None
    """Upper bound per step; None if unknown, which also ranks the insight first."""
    change: str | None = None
    """The change, as `perfkit whatif` takes it, whose predicted saving replaces the bound if the run has it."""
    category: Category | None = None
    """Category of the step's time that the bound is the mean over ranks of; a step may save more, if ranks take turns
    to need it."""
    only_finds_out: bool = False
    """Whether the recommendation only leads to the reason: then the bound is the time that it is about, no promise."""


class Rule(NamedTuple):
    """A rule over one run. An entry point of the group `perfkit.insights` is one."""

    name: str
    """Of a plug-in, its entry point's name counts instead."""
    evaluate: Callable[[RunContext], InsightDraft | None]
    """Returns None if the rule does not apply to the run."""
    explains_all: bool = False
    """Whether no later rule is evaluated if this one applies, because what they look at may follow from it. Ranks that
    are late beyond chance do not: with these all rules are evaluated."""
