"""What `perfkit compare` says. A change to it bumps `COMPARISON_VERSION`."""

from typing import Final, Literal

from msgspec import Struct

from perfkit.schema.common import Finding
from perfkit.schema.display import NotebookDisplay
from perfkit.schema.scaling import Resampling

COMPARISON_VERSION: Final = 2
MetricKind = Literal["run", "category", "loading", "efficiency", "collective", "operator"]


class Change(Struct, frozen=True, kw_only=True):
    """One figure before and after."""

    kind: MetricKind
    name: str
    """What a gate calls it, for every kind but collectives and operators."""
    unit: Literal["ns", "1/s", "ratio"]
    before: float | None
    """Median over the runs of that side; None where it has no such figure."""
    after: float | None
    ratio: float | None
    """After / before."""
    interval: tuple[float, float] | None
    """95 % bootstrap interval of the ratio; None of too few runs, and where it has no end: before may be 0."""
    resampled: Resampling | None
    """What was drawn from for the interval."""
    significant: bool | None
    """Whether the interval leaves 1 out; None where there is none, or too few runs to tell."""


GateState = Literal["passed", "failed", "not_evaluated"]


class GateResult(Struct, frozen=True, kw_only=True):
    """A condition that must not hold, and whether it does."""

    expression: str
    state: GateState
    message: str
    """The figures it was decided by, or why it was not."""


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
    changes: list[Change]
    """In order of kind; within collectives and operators by how much time they gained or lost."""
    gates: list[GateResult]
    findings: list[Finding]
