"""The content of a report before it is rendered: facts, tables, findings and recommendations.

The console, markdown, HTML and notebook renderers differ only in how they draw a `Document`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from perfkit.schema.common import Category, Severity

RECOMMENDATIONS = "Recommendations (estimated savings)"
FINDINGS = "Findings"
"""Headings."""

Tone = Literal["plain", "strong", "faint", "good", "info", "warning", "error"]
"""The meaning of a piece of text; renderers with colours map it to one."""

Kind = Literal["number", "name", "words"]
"""How a column behaves if the table is too wide: a `number` is never cut, a `name` is shortened in its
middle, `words` wrap."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column's title and kind."""

    title: str
    kind: Kind = "number"


@dataclass(frozen=True, slots=True)
class Instance:
    """Where a timeline shows what a row sums up: the slices of a name, and the longest of all if it is known."""

    name: str
    what: str = "longest"
    """What is largest in it."""
    ns: int = 0
    rank: int | None = None
    step: int | None = None
    at_ns: int | None = None
    """Its start, since that of the step's window; None if unknown."""
    is_inside: bool = False
    """Whether it is a slice of another name, which runs in what the row is about: a kernel of a module."""


BAR: Final = "█"
"""A cell of a bar in text; renderers that know its category draw it in that one's look."""


class CategoryBar(NamedTuple):
    """A bar that shows the share of a category, from 0 to 1."""

    category: Category
    share: float


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell; `note` follows the text, or goes below it if the table would be too wide."""

    text: str
    note: str = ""
    tone: Tone = "plain"
    instance: Instance | None = None
    """Of the first cell of a row: where the page's timelines show it."""
    bar: CategoryBar | None = None
    """What `text` shows, if that is a bar."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table, with a remark below it (such as what was left out)."""

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
    """A line of the findings section."""

    severity: Severity
    text: str


@dataclass(frozen=True, slots=True)
class InsightItem:
    """A numbered recommendation."""

    text: str
    """The sentence, after the run's name if there are several runs."""
    recommendation: str
    potential_saving: str
    """Empty if unknown."""


@dataclass(frozen=True, slots=True)
class Section:
    """One run."""

    title: str
    headline: str
    tone: Tone
    summary: list[Table]
    """Tables for the first screen."""
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
    """Findings about no single section."""
