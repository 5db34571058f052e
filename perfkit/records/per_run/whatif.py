"""Result of `perfkit whatif`. A change to it bumps `WHAT_IF_VERSION`."""

from typing import Final

from msgspec import Struct

from perfkit.records.common import Finding
from perfkit.records.display import NotebookDisplay

WHAT_IF_VERSION: Final = 2


class AppliedChange(Struct, frozen=True, kw_only=True):
    """One change, what it applies to, and what its prediction assumes."""

    change: str
    """As given."""
    applies_to: str
    """What of the run it changes, and how much time that takes."""
    assumptions: list[str]


class Prediction(Struct, frozen=True, kw_only=True):
    """The step after some changes, all made at once (metrics.md section 17)."""

    changes: list[AppliedChange]
    step_ns: float
    """Mean over steps, in the time of the run's real steps."""
    range_ns: tuple[int, int]
    """Of the shortest and the longest step."""
    saving_ns: float
    """By how much the mean step gets shorter; negative if steps get longer."""
    interval_ns: tuple[float, float] | None
    """95 % bootstrap interval of the saving over the steps; None for fewer than five. It shows how steps vary, not
    whether the assumptions hold."""


class PredictedSaving(Struct, frozen=True, kw_only=True, gc=False):
    """What a change that a recommendation is about would save (metrics.md section 17)."""

    change: str
    """As `perfkit whatif` takes it; several are separated by spaces."""
    saving_ns: float
    """Per step, the mean over steps, as the shares of a report are."""


class WhatIf(NotebookDisplay, Struct, frozen=True, kw_only=True):
    """`perfkit whatif`: how long a step of a run would take after changes."""

    schema_version: int = WHAT_IF_VERSION
    perfkit_version: str
    run: str
    path: str
    ranks: list[int]
    """Those that were replayed; empty for one of unknown rank."""
    world_size: int
    steps: list[int | None]
    """Those that were replayed."""
    measured_step_ns: float
    """The run's mean step (`StepTime`)."""
    replayed_step_ns: float
    """The mean of the replayed steps without a change."""
    prediction: Prediction | None
    """Of the given changes together; None if none was given."""
    ranking: list[Prediction] | None
    """Without a given change, the single changes that save most, the largest first; otherwise None."""
    findings: list[Finding]
