"""Result of `perfkit history`. A change to it bumps `HISTORY_VERSION`."""

from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from perfkit.schema.common import Finding, MeasuredOn
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
    """Start of the first run; ISO 8601."""
    commit: str | None
    versions: dict[str, str]
    """Package versions of the last run."""
    step_ns: float
    """Median over steps of the largest wall time over ranks (metrics.md section 7); the median over several runs."""
    interval_ns: tuple[float, float] | None
    """95 % bootstrap interval over runs; of one run, the spread over its steps. None for two runs, or for one with
    fewer than five steps."""
    resampled: Literal["runs", "steps"] | None
    """What was resampled. The steps of one run share whatever disturbed that run."""
    samples_per_s: float | None
    efficiency: dict[str, float | None]
    """Factors, by their names in `Efficiency`."""


class ChangePoint(Struct, frozen=True, kw_only=True):
    """A lasting change of the step time that exceeds run-to-run variation."""

    run: str
    """The first run after it."""
    commit: str | None
    last_before: str
    """The run before it."""
    before_ns: float
    """Median of the runs since the previous change point, or the first run."""
    after_ns: float
    """Median of the runs up to the next change point, or the last run."""
    interval: tuple[float, float]
    """95 % bootstrap interval of after / before, over runs."""
    p_value: float
    """Probability of a change as clear as this anywhere in these runs by chance alone (Pettitt's test)."""


class ConfigHistory(Struct, frozen=True, kw_only=True):
    """Runs of one configuration on one kind of device."""

    settings: dict[str, Any]
    """Options that they share."""
    measured_on: MeasuredOn = "recorded"
    """The steps of the step times: without the profiler if all runs have such steps, else profiled ones."""
    runs: int
    points: list[HistoryPoint]
    """In order of time."""
    change_points: list[ChangePoint]
    reason: str | None
    """Why no change point can be detected; None if it could."""


class History(NotebookDisplay, Struct, frozen=True, kw_only=True):
    """`perfkit history`: runs over time, grouped by configuration."""

    schema_version: int = HISTORY_VERSION
    perfkit_version: str
    by: HistoryBy
    configurations: list[ConfigHistory]
    """Configurations with the most runs first."""
    findings: list[Finding]

    def plot_steps(self) -> "Figure":
        """Return the step time over time as a plotly figure, one line per configuration."""
        return self._figure("steps")
