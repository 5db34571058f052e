"""What a subject of the report is: one row, by which everything about it is found."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfkit.engine.run_context import RunContext
    from perfkit.engine.trace_context import TraceContext


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A subject: what one trace tells of it, what the ranks tell together, and how it is shown.

    A part is computed only if somebody asks for its subject. Parts of perfkit's own subjects are named after a field of
    `TraceSummary` or `RunReport`; those that a package adds are in `RunReport.subjects`, by the subject's name.
    """

    rank: Mapping[str, Callable[["TraceContext"], Any]] = field(default_factory=dict)
    """Small, picklable records of one trace; of a subject that a package adds, those of all traces of a rank are
    joined in a list."""
    run: Mapping[str, Callable[["RunContext"], Any]] = field(default_factory=dict)
    """Records of the run. A subject that a package adds has one part, which takes the place of those of its ranks."""
    tables: str | None = None
    """`module:function` of its tables: takes the run's report and the number of rows of ranked tables, and yields
    them; None for a table that has nothing to show."""
    in_answer: bool = True
    """Whether the short answer needs it."""
