"""Types that the records share: categories, units and findings."""

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal, get_args

from msgspec import Meta, Struct

Category = Literal["compute", "communication", "memcpy", "data_loading", "overhead"]
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
"""By priority: an instant counts for the first category active at it (metrics.md section 4)."""
MeasuredOn = Literal["plain", "recorded"]
"""Steps without the profiler, or recorded ones: profiled steps."""
Severity = Literal["info", "warning", "error"]
UNNAMED: Final = "custom"
"""The workload or input of a program that does not name its own."""
Nanoseconds = Annotated[int, Meta(description="nanoseconds")]


class Finding(Struct, frozen=True, kw_only=True):
    """A data-quality problem or anomaly that affects how far the numbers can be trusted."""

    code: str
    """One of `perfkit.records.findings.FINDING_CODES`; of a plug-in, prefixed with its package's name and a dot."""
    severity: Severity
    message: str
    rank: int | None = None
    file: str | None = None


class Observation(Struct, frozen=True):
    """What becomes a finding: its code and values, which `perfkit.report.wording.findings` makes a message of."""

    code: str
    values: dict[str, Any] = {}
    """The arguments of the sentence; of a trace only what msgspec can decode without a type."""
    case: str = ""
    """Which of several sentences of the code."""
    severity: Severity | None = None
    """None for that of the code."""
    rank: int | None = None
    file: str | None = None


_WORST_FIRST: Final[tuple[Severity, ...]] = ("error", "warning", "info")


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by severity, those of one in the order in which they are given."""
    return sorted(findings, key=lambda finding: _WORST_FIRST.index(finding.severity))
