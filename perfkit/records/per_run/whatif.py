"""Result of `perfkit whatif`. A change to it bumps `WHAT_IF_VERSION`."""

from typing import Final

from msgspec import Struct

from perfkit.records.common import Finding
from perfkit.records.display import NotebookDisplay

WHAT_IF_VERSION: Final = 1
UNLIKE_SHARE: Final = 0.05
"""Share of the step from which a saving in the mean is told besides that of the median step."""


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
    """Median over steps."""
    range_ns: tuple[int, int]
    """Of the shortest and the longest step."""
    saving_ns: float
    """Median replayed step minus `step_ns`; negative if steps get longer."""
    mean_saving_ns: float
    """The mean over steps: more than `saving_ns` if the change shortens some steps only, such as every tenth."""
    interval_ns: tuple[float, float] | None
    """95 % bootstrap interval of the saving over the steps; None for fewer than five. It shows how steps vary, not
    whether the assumptions hold."""

    def reported_saving_ns(self, replayed_step_ns: float) -> float:
        """Return what the change is ranked by: the mean saving where it differs noticeably, else that of the median."""
        apart = abs(self.mean_saving_ns - self.saving_ns) > UNLIKE_SHARE * replayed_step_ns
        return self.mean_saving_ns if apart else self.saving_ns


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
    """Median over these steps of the time between their ends on all ranks."""
    replayed_step_ns: float
    """The same of the replay without a change."""
    prediction: Prediction | None
    """Of the given changes together; None if none was given."""
    ranking: list[Prediction] | None
    """Without a given change, the single changes that save most, the largest first; otherwise None."""
    findings: list[Finding]
