"""Fills templates with facts: the words are those of the caller, and only figures and names are written here."""

from collections.abc import Callable, Mapping, Sequence, Sized
from string import Formatter
from typing import Any, Final

from perfkit.base.formatting import (
    duration,
    escape_unprintable,
    figures,
    format_percent,
    percent_change,
    ranges,
    rank_list,
    size,
    whole_percent,
)
from perfkit.base.step_numbers import numbered
from perfkit.records.facts import Fact, Statement, Words

FORMATS: Final[Mapping[str, Callable[[Any], str]]] = {
    "duration": duration,
    "percent": whole_percent,
    "tenths": format_percent,
    "change": percent_change,
    "size": size,
    "figures": figures,
    "ranks": rank_list,
    "ranges": ranges,
    "list": ", ".join,
    "step": numbered,
    "either": " or ".join,
}
"""Specifications of templates, besides those of `str.format`.

`{n:|one|several}` selects by whether a number, or the length of a list, is one.
"""


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
        if isinstance(value, Fact | Statement):
            return self.fill(value.fact if isinstance(value, Statement) else value)
        if isinstance(value, str):
            return escape_unprintable(value)
        if isinstance(value, dict):
            return {key: self._text(part) for key, part in value.items()}
        if _are_facts(value):
            return "".join(map(self.fill, value))
        if isinstance(value, list):
            parts = [self._text(part) for part in value]
            return ", ".join(parts) if value and (isinstance(value[0], Fact) or _are_facts(value[0])) else parts
        return value

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.startswith("|"):
            singular, plural = format_spec[1:].split("|")
            return singular if (len(value) if isinstance(value, Sized) else value) == 1 else plural
        return FORMATS[format_spec](value) if format_spec in FORMATS else str(format(value, format_spec))


def _are_facts(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(one, Fact) for one in value)
