"""The table of a run's annotated phases."""

from collections.abc import Iterator, Sequence

from perfkit.base.formatting import duration, escape_unprintable, format_percent
from perfkit.records.aggregate import MAJORITY, add_phases
from perfkit.records.rank import PhaseStat
from perfkit.records.run import RunReport
from perfkit.tables import aggregates as sums
from perfkit.tables.labels import per_step
from perfkit.tables.specification import Cell, Field, Instance, Table, joined, make_table, number


def tables(run: RunReport, top: int) -> Iterator[Table | None]:
    """Yield the program's annotated phases, mean per step and rank."""
    merged = add_phases(row for rank in run.ranks for row in rank.phases)
    steps = sum(len(rank.steps) for rank in run.ranks)
    wall = sum(step.wall_ns for step in sums.steps_of(run))
    columns = (
        Field("name", lambda row: Cell(escape_unprintable(row.name), instance=Instance(row.name)), "name"),
        number("count", lambda row: per_step(row.count, steps)),
        number("time", lambda row: row.total_ns / steps, duration),
        number("% of wall", lambda row: row.total_ns / wall, format_percent),
        number("mean", lambda row: row.total_ns / row.count if row.count else None, duration),
        number("largest", lambda row: row.max_ns, duration),
    )
    left = len(merged) - top
    remark = joined(f"{left} more" if left > 0 else "", _closure_remark(merged, wall), by=". ")
    title = "Annotated phases on the host (mean per step and rank; nested phases overlap)"
    yield make_table(title, merged if steps and wall else [], columns, remark, top=top)


def _closure_remark(phases: Sequence[PhaseStat], wall_ns: int) -> str:
    """Return what an optimizer step that takes most of the step may contain."""
    longest = max((phase.total_ns for phase in phases if phase.name.startswith("Optimizer.step#")), default=0)
    if longest < MAJORITY * wall_ns:
        return ""
    return "Optimizer.step includes forward and backward if the program passes it a closure, as Lightning does"
