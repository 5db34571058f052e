"""Result of `perfkit compare`. A change to it bumps `COMPARISON_VERSION`."""

from typing import Final, Literal

from msgspec import Struct

from perfkit.schema.common import Finding, MeasuredOn
from perfkit.schema.display import NotebookDisplay
from perfkit.schema.scaling import Resampling

COMPARISON_VERSION: Final = 2
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
    """Median over the runs of that side; None if that side does not have the metric."""
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
    gates: list[GateResult]
    findings: list[Finding]
