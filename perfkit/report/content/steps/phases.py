"""The table of a run's annotated phases."""

from collections.abc import Sequence
from typing import Final

from perfkit.report.content import aggregates as sums
from perfkit.report.content.document import Cell, Column, Instance, Table
from perfkit.report.content.idle import per_step
from perfkit.schema.rank import PhaseStat
from perfkit.schema.run import RunReport
from perfkit.util.formatting import duration, escape_unprintable, format_percent

_MOST_OF_THE_STEP: Final = 0.5
"""Share of the step from which an optimizer's own step is unlikely to be all that its phase contains."""


def phases(run: RunReport, top: int) -> Table | None:
    """Return the program's annotated phases, mean per step and rank."""
    merged = sums.merged_phases(run)
    steps = sum(len(rank.steps) for rank in run.ranks)
    wall = sum(step.wall_ns for step in sums.steps_of(run))
    if not merged or not steps or not wall:
        return None
    left = len(merged) - top
    return Table(
        "Annotated phases on the host (mean per step and rank; nested phases overlap)",
        (
            Column("name", "name"),
            Column("count"),
            Column("time"),
            Column("% of wall"),
            Column("mean"),
            Column("largest"),
        ),
        [
            (
                Cell(escape_unprintable(row.name), instance=Instance(row.name)),
                Cell(per_step(row.count, steps)),
                Cell(duration(row.total_ns / steps)),
                Cell(format_percent(row.total_ns / wall)),
                Cell(duration(row.total_ns / row.count if row.count else None)),
                Cell(duration(row.max_ns)),
            )
            for row in merged[:top]
        ],
        ". ".join(filter(None, (f"{left} more" if left > 0 else "", _closure_remark(merged, wall)))),
    )


def _closure_remark(phases: Sequence[PhaseStat], wall_ns: int) -> str:
    """Return what an optimizer step that takes most of the step may contain."""
    longest = max((phase.total_ns for phase in phases if phase.name.startswith("Optimizer.step#")), default=0)
    if longest < _MOST_OF_THE_STEP * wall_ns:
        return ""
    return "Optimizer.step includes forward and backward if the program passes it a closure, as Lightning does"
