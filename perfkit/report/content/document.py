"""The content of a report before it is rendered: facts, tables, findings and recommendations.

The console, markdown, HTML and notebook renderers differ only in how they draw a `Document`.
"""

from dataclasses import dataclass, field

from perfkit.base.formatting import escape_unprintable
from perfkit.records.common import Finding, Severity
from perfkit.tables.specification import Table, Tone

RECOMMENDATIONS = "Recommendations (estimated savings)"
FINDINGS = "Findings"
"""Headings."""


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

    @classmethod
    def of(cls, finding: Finding) -> "FindingLine":
        """Return the line of a finding whose code says nothing to a reader."""
        return cls(finding.severity, escape_unprintable(finding.message))


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
    summary: list[Table] = field(default_factory=list)
    """Tables for the first screen."""
    key_values: list[KeyValue] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    findings: list[FindingLine] = field(default_factory=list)
    trust: str = ""
    """What makes the headline doubtful, and what would settle it."""


@dataclass(frozen=True, slots=True)
class Document:
    """A whole report."""

    title: str
    sections: list[Section]
    footnotes: list[str] = field(default_factory=list)
    comparison: list[Table] = field(default_factory=list)
    advice: list[InsightItem] = field(default_factory=list)
    findings: list[FindingLine] = field(default_factory=list)
    """Findings about no single section."""
    first: list[FindingLine] = field(default_factory=list)
    """Those without which what follows is misread."""
    headlines: list[str] = field(default_factory=list)
    """The answer of a report of several runs: how each series scales."""
    opening: list[Table] = field(default_factory=list)
    """The tables that have what its pictures show."""
