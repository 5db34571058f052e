"""Facts that sentences are made of: analysis returns them, `perfkit.report.wording` turns each into words."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct


class Fact(Struct, frozen=True):
    """One fact: a row of a table of words, and what that row needs."""

    name: str
    values: dict[str, Any] = {}
    """Times in ns, shares as fractions of one; names as they are in the trace."""


Facts = tuple[Fact, ...]
"""The facts of one sentence, in its order."""
Words = Mapping[str, str | Callable[..., str]]
"""By fact: a template of `perfkit.tables.words`, or a function of the fact's values."""


def fact(name: str, /, **values: Any) -> Fact:
    """Return a fact."""
    return Fact(name, values)


class Statement(str):
    """A fact in the place of a record's text, until `perfkit.report.wording.worded` makes words of it.

    As a text it is the name of the fact.
    """

    __slots__ = ("fact",)
    fact: Fact

    def __new__(cls, stated: Fact) -> "Statement":
        """State a fact."""
        made = super().__new__(cls, stated.name)
        made.fact = stated
        return made

    def __reduce__(self) -> "tuple[type[Statement], tuple[Fact]]":
        """Copy and pickle it with its fact."""
        return type(self), (self.fact,)


def statement(name: str, /, **values: Any) -> Statement:
    """Return a statement of one fact."""
    return Statement(Fact(name, values))
