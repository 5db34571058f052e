"""Facts that sentences are made of: analysis returns them, and a table of templates turns each into words."""

from collections.abc import Callable, Mapping, Sequence, Sized
from string import Formatter
from typing import Any, Final

from msgspec import Struct

from perfkit.base.formatting import (
    duration,
    escape_unprintable,
    figures,
    format_percent,
    ranges,
    rank_list,
    size,
    whole_percent,
)


class Fact(Struct, frozen=True):
    """One fact: a row of a table of words, and what that row needs."""

    name: str
    values: dict[str, Any] = {}
    """Times in ns, shares as fractions of one; names as they are in the trace."""


Facts = tuple[Fact, ...]
"""The facts of one sentence, in its order."""
Words = Mapping[str, str | Callable[..., str]]
"""By fact: a template of `str.format` with the specifications of `FORMATS`, or a function of the fact's values.

`{n:|one|several}` selects by whether a number, or the length of a list, is one.
"""

FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {
    "duration": duration,
    "percent": whole_percent,
    "tenths": format_percent,
    "size": size,
    "figures": figures,
    "ranks": rank_list,
    "ranges": ranges,
    "list": ", ".join,
}


def fact(name: str, /, **values: Any) -> Fact:
    """Return a fact."""
    return Fact(name, values)


def in_words(facts: Sequence[Fact], words: Words) -> str:
    """Return facts as one text.

    Raises:
        KeyError: a fact has no words, or lacks a value that they need.
    """
    return "".join(map(_Filler(words).fill, facts))


class _Filler(Formatter):
    """Fills templates: facts among their values become words, of a list with commas; text from a trace is escaped."""

    def __init__(self, words: Words) -> None:
        self._words = words

    def fill(self, one: Fact) -> str:
        template = self._words[one.name]
        values = {name: self._text(value) for name, value in one.values.items()}
        return template(**values) if callable(template) else self.vformat(template, (), values)

    def _text(self, value: Any) -> Any:
        if isinstance(value, str):
            return escape_unprintable(value)
        if isinstance(value, Fact):
            return self.fill(value)
        if isinstance(value, tuple) and all(isinstance(one, Fact) for one in value):
            return "".join(map(self.fill, value))
        if isinstance(value, list) and value and isinstance(value[0], Fact | tuple):
            return ", ".join(map(self._text, value))
        return value

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("|"):
            singular, plural = format_spec[1:].split("|")
            return singular if (len(value) if isinstance(value, Sized) else value) == 1 else plural
        return FORMATS[format_spec](value) if format_spec in FORMATS else str(format(value, format_spec))
