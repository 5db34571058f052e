"""Results of `perfkit compare` and `perfkit history`; a change bumps `COMPARISON_VERSION` or `HISTORY_VERSION`."""

from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from perfkit.records.common import Finding, MeasuredOn
from perfkit.records.display import NotebookDisplay
from perfkit.records.scaling import Resampling

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


COMPARISON_VERSION: Final = 3
MODELS_DIFFER: Final = "models_differ"
SAMPLES_DIFFER: Final = "samples_per_step_differ"
RANKS_DIFFER: Final = "ranks_differ"
STEP_WORK_CODES: Final = (MODELS_DIFFER, SAMPLES_DIFFER, RANKS_DIFFER)
"""Findings that a step does other work after than before, or may do. A comparison has at most one of them."""
MetricKind = Literal["run", "category", "idle", "loading", "efficiency", "collective", "operator"]


class Change(Struct, frozen=True, kw_only=True):
    """One metric before and after."""

    kind: MetricKind
    name: str
    """Also the name that gates use, for every kind except collectives and operators."""
    unit: Literal["ns", "1/s", "ratio"]
    before: float | None
    """Median over the runs of that side, of times per step the mean over the steps of each; None if that side does not
    have the metric."""
    after: float | None
    ratio: float | None
    """After / before."""
    interval: tuple[float, float] | None
    """95 % bootstrap interval of the ratio; None with too few runs, or if unbounded because `before` may be 0."""
    resampled: Resampling | None
    """What was resampled for the interval."""
    significant: bool | None
    """Whether the interval over runs excludes 1. With too few runs for one: whether the change is larger than the
    assumed noise, None without such an assumption."""


GateState = Literal["passed", "failed", "not_evaluated"]


class GateResult(Struct, frozen=True, kw_only=True):
    """A condition that fails the comparison if it holds, and its outcome."""

    expression: str
    state: GateState
    message: str
    """The values it was evaluated on, or why it was not evaluated."""


class Side(Struct, frozen=True, kw_only=True):
    """The runs on one side of a comparison."""

    path: str
    runs: list[str]


DifferenceKind = Literal["option", "commit", "version", "device"]


class Difference(Struct, frozen=True, kw_only=True):
    """What is not the same before and after, besides the measurements; values that are unknown differ from nothing."""

    kind: DifferenceKind
    name: str
    """Of the option or package."""
    before: list[str]
    """Values of the runs of that side, each once."""
    after: list[str]


class Comparison(NotebookDisplay, Struct, frozen=True, kw_only=True):
    """`perfkit compare`: two runs, or two sets of repeats."""

    schema_version: int = COMPARISON_VERSION
    perfkit_version: str
    before: Side
    after: Side
    measured_on: MeasuredOn = "recorded"
    """The steps of `step_time` and the rates: without the profiler if all runs have such steps (`profiled_step` is then
    the step in the traces), else profiled ones."""
    assumed_noise: float | None = None
    """Relative change up to which a change counts as noise where there are too few runs (`--assume-noise`)."""
    changes: list[Change]
    """By kind; collectives and operators by the absolute difference in time, largest first."""
    differences: list[Difference] = []
    """Of the options in the first run of each side; of the commit, packages and devices in all runs."""
    gates: list[GateResult]
    findings: list[Finding]


HISTORY_VERSION: Final = 3
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
    """Mean over steps of the largest wall time over ranks (metrics.md section 7); the median over several runs."""
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
