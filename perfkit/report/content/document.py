"""What a report for people consists of before it is drawn: facts, tables and findings.

The rich and the markdown reporter differ only in how they draw a `JsonScanner`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from perfkit.schema.common import Severity

Tone = Literal["plain", "strong", "faint", "good", "info", "warning", "error"]
"""What a piece of text means; a reporter with colours gives it one."""

Kind = Literal["number", "name", "words"]
"""How a column behaves where room is scarce: a `number` is never cut, a `name` is shortened in its
middle, `words` are folded onto further lines."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's title and kind."""

    title: str
    kind: Kind = "number"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell; `note` stands behind the text, or under it where the table would be too wide."""

    text: str
    note: str = ""
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class Table:
    """A table, with a remark under it (what was left out, say)."""

    title: str
    columns: tuple[Column, ...]
    rows: Sequence[tuple[Cell, ...]]
    remark: str = ""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """A labelled line."""

    label: str
    value: str
    tone: Tone = "plain"


@dataclass(frozen=True, slots=True)
class FindingLine:
    """A finding as it is shown."""

    severity: Severity
    text: str


@dataclass(frozen=True, slots=True)
class InsightItem:
    """An insight as it is shown."""

    text: str
    """The sentence, and what run it is about where there are several."""
    recommendation: str
    potential_saving: str
    """Empty where it is not known."""


@dataclass(frozen=True, slots=True)
class Section:
    """One run."""

    title: str
    headline: str
    tone: Tone
    summary: list[Table]
    """What belongs on the first screen."""
    key_values: list[KeyValue]
    tables: list[Table]
    findings: list[FindingLine]


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report."""

    title: str
    comparison: list[Table]
    sections: list[Section]
    footnotes: list[str] = field(default_factory=list)
    advice: list[InsightItem] = field(default_factory=list)
    findings: list[FindingLine] = field(default_factory=list)
    """About no one section."""
