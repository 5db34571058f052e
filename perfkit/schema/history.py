"""What `perfkit history` says. A change to it bumps `HISTORY_VERSION`."""

from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from perfkit.schema.common import Finding
from perfkit.schema.display import NotebookDisplay

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

HISTORY_VERSION: Final = 2
HistoryBy = Literal["run", "commit"]


class HistoryPoint(Struct, frozen=True, kw_only=True):
    """A run, or the runs of one commit."""

    runs: list[str]
    """In order of time."""
    started_at: str
    """Of the first; ISO 8601."""
    commit: str | None
    versions: dict[str, str]
    """Of the last."""
    step_ns: float
    """Median over steps of the largest wall over ranks (metrics.md section 7); of several runs the median."""
    interval_ns: tuple[float, float] | None
    """95 % bootstrap interval; None of two runs, and of one with fewer than five steps."""
    resampled: Literal["runs", "steps"] | None
    """What was drawn from. Steps of one run share whatever disturbed that run."""
    samples_per_s: float | None
    efficiency: dict[str, float | None]
    """Factors by the names that they have in `Efficiency`."""


class ChangePoint(Struct, frozen=True, kw_only=True):
    """A place where the step time changed for good, by more than the runs differ among themselves."""

    run: str
    """The first run after it."""
    commit: str | None
    last_before: str
    """The run before it."""
    before_ns: float
    """Median of the runs since the shift before, or the first."""
    after_ns: float
    """Median of the runs up to the next shift, or the last."""
    interval: tuple[float, float]
    """95 % bootstrap interval of after / before, over runs."""
    p_value: float
    """How often chance alone would show a shift as clear in these runs, anywhere among them (Pettitt's test)."""


class ConfigHistory(Struct, frozen=True, kw_only=True):
    """Runs of one configuration on one kind of device."""

    settings: dict[str, Any]
    """What they have in common."""
    runs: int
    points: list[HistoryPoint]
    """In order of time."""
    change_points: list[ChangePoint]
    reason: str | None
    """Why none can be told; None where one would have been found."""


class History(NotebookDisplay, Struct, frozen=True, kw_only=True):
    """`perfkit history`: runs over time, like with like."""

    schema_version: int = HISTORY_VERSION
    perfkit_version: str
    by: HistoryBy
    configurations: list[ConfigHistory]
    """Those of the most runs first."""
    findings: list[Finding]

    def plot_steps(self) -> "Figure":
        """Return the step time over time as a plotly figure, a line a configuration."""
        return self._figure("steps")
