"""What a rule returns: a loss, of which the report makes words; and what a rule is."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from perfkit.insights.run_context import RunContext
from perfkit.records.common import Category
from perfkit.records.facts import Facts, Words


class Loss(Struct, frozen=True, kw_only=True):
    """Time that a run loses: to what, where, how much, and what would remove it. Facts only."""

    cause: str
    facts: Facts
    """What its sentence is made of."""
    remedy: Facts
    """What to try; what its words are made of."""
    per_step_ns: float | None
    """Upper bound of the saving; None if unknown, which also ranks the loss first."""
    evidence: dict[str, float] = {}
    """The figures it rests on, by name; times in ns, shares as fractions of one."""
    ranks: tuple[int, ...] = ()
    """The ranks it is on; empty for all."""
    steps: tuple[int, ...] = ()
    """The steps it is in; empty for all."""
    phase: str | None = None
    """The phase of the step."""
    code: str | None = None
    """The module, function, operator or line of code."""
    change: str | None = None
    """The change, as `perfkit whatif` takes it, whose predicted saving replaces the bound if the run has it."""
    category: Category | None = None
    """Category of the step's time that the bound is the mean over ranks of; a step may save more, if ranks take turns
    to need it."""
    only_finds_out: bool = False
    """Whether the remedy only leads to the reason: then the bound is the time that it is about, no promise."""


class Rule(NamedTuple):
    """A rule over one run. An entry point of the group `perfkit.insights` is one."""

    name: str
    """Of a plug-in, its entry point's name counts instead."""
    evaluate: Callable[[RunContext], Loss | None]
    """Returns None if the rule does not apply to the run."""
    explains_all: bool = False
    """Whether no later rule is evaluated if this one applies, because what they look at may follow from it. Ranks that
    are late beyond chance do not: with these all rules are evaluated."""
    words: Words | None = None
    """Of a plug-in, which words its own facts: `{"slow_load": "one load took {load_ns:duration}"}`."""
