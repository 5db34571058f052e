"""What the rules of insights look at: one run's mean step, and its place among the other runs."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from perfkit.schema.common import CATEGORIES, Category
from perfkit.schema.cross_rank import Straggler
from perfkit.schema.run import RunReport
from perfkit.schema.scaling import MultiRunSummary, OptionComparison, ScalingPoint, ScalingSeries


class RunContext(NamedTuple):
    """One run."""

    run: RunReport
    rank_steps: int
    """Steps of all ranks."""
    step_ns: float
    """Mean over steps of all ranks."""
    exposed_ns: dict[Category, float]
    """Likewise, by category."""
    place: tuple[ScalingSeries, ScalingPoint, ScalingPoint] | None
    """A series that it belongs to, the point before it and its own; None at the smallest world size."""
    load_ratio: float | None
    """Median load against that from memory."""

    def share(self, ns: float) -> float:
        """Return a time as a share of the step."""
        return ns / self.step_ns

    def option(self, name: str) -> object:
        """Return an option of the run; None where it is not known."""
        return (self.run.config or {}).get(name)

    def has(self, code: str) -> bool:
        """Say whether the run has such a finding."""
        return any(finding.code == code for finding in self.run.findings)


def run_context(run: RunReport, together: MultiRunSummary | None) -> RunContext | None:
    """Return what is known of a run; None of one whose steps tell nothing of a typical step."""
    steps = [step for rank in run.ranks for step in rank.steps if step.step is not None]
    wall_ns = sum(step.wall_ns for step in steps)
    # One step may be anything; of a failed run nobody knows what its last steps did.
    if len({step.step for step in steps}) < 2 or not wall_ns or run.state == "failed":
        return None
    return RunContext(
        run=run,
        rank_steps=len(steps),
        step_ns=wall_ns / len(steps),
        exposed_ns={name: sum(getattr(step.exposed_ns, name) for step in steps) / len(steps) for name in CATEGORIES},
        place=_place(run, together.series if together else ()),
        load_ratio=_load_ratio(run, together.option_comparisons if together else ()),
    )


def _place(run: RunReport, several: Sequence[ScalingSeries]) -> tuple[ScalingSeries, ScalingPoint, ScalingPoint] | None:
    for series in several:
        for before, point in pairwise(series.points):
            if run.run in point.step_time.runs:
                return series, before, point
    return None


def _load_ratio(run: RunReport, axes: Sequence[OptionComparison]) -> float | None:
    rows = (row for axis in axes if axis.option == "source" for row in axis.rows if run.run in row.step_time.runs)
    return next((row.load_ratio for row in rows), None)


def slow_rank(run: RunReport) -> Straggler | None:
    """Return the rank that the others wait for; None where none is waited for step after step."""
    found = run.cross_rank.straggler if run.cross_rank else None
    # Of one that is late, but that the others do not wait for, the waiting is somebody else's.
    return found if found is not None and found.delays_others else None
