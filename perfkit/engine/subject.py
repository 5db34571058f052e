"""What a subject of the report is: one row, by which everything about it is found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perfkit.records.facts import Words

if TYPE_CHECKING:
    from perfkit.engine.run_context import RunContext
    from perfkit.engine.trace_context import TraceContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A subject: what one trace tells of it, what the ranks tell together, what it costs, and how it is shown.

    A part is computed only if somebody asks for its subject. A part that is named after a field of `TraceSummary` or
    `RunReport` fills it; any other, and those that a package adds, are in `RunReport.subjects`, by the subject's name.
    """

    rank: Mapping[str, Callable[["TraceContext"], Any]] = field(default_factory=dict)
    """Small, picklable records of one trace; in `RankReport.subjects` is a list of those of all traces of a rank."""
    run: Mapping[str, Callable[["RunContext"], Any]] = field(default_factory=dict)
    """Records of the run; a subject has at most one part in `RunReport.subjects`."""
    needs: tuple[str, ...] = ()
    """Subjects whose records of traces its records of the run compare: computed where there are several traces."""
    losses: str | None = None
    """`module:name` of what it costs: rules by the name of what they find (`perfkit.engine.losses.loss`)."""
    words: Words = field(default_factory=dict)
    """Of a subject that a package adds, which words the facts of its losses: `{"slow": "it takes {ns:duration}"}`."""
    tables: str | None = None
    """`module:function` of its tables: takes the run's report and the number of rows of ranked tables, and yields
    them; None for a table that has nothing to show."""
    charts: str | None = None
    """`module:name` of its charts by name (`perfkit.tables.charts.RunChart`)."""
    in_answer: bool = True
    """Whether the short answer needs it."""
