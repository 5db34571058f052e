"""The tables of a run's idle time: by cause, and what ran in it."""

from perfkit.report.content.aggregates import steps_of
from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.aggregate import merge_idle
from perfkit.schema.per_rank.idle import CAUSE_WORDS, CAUSES, Cause, IdleTime
from perfkit.schema.run import RunReport
from perfkit.util.formatting import MISSING, duration, escape_unprintable, figures, format_percent

_SMALLEST_SHARE = 0.005
"""Share of the step from which idle time is worth two tables."""


def causes(run: RunReport) -> Table | None:
    """Return the idle time by cause; None if unknown or too little."""
    idle, wall_ns = _known(run)
    if idle is None:
        return None
    return Table(
        "Idle time by cause (mean per step and rank)",
        (
            Column("cause", "words"),
            Column("time"),
            Column("% of step"),
            Column("pauses"),
            Column("longest"),
        ),
        [_cause_row(cause, idle, len(steps_of(run)), wall_ns) for cause in _by_time(idle)],
        _kernels(idle),
    )


def _known(run: RunReport) -> tuple[IdleTime | None, int]:
    """Return the idle time over all ranks, and the wall time (ns); no idle time if too little."""
    idle, wall_ns = merge_idle(run.ranks), sum(step.wall_ns for step in steps_of(run))
    total_ns = sum(row.total_ns for row in idle.causes)
    return (idle if wall_ns and total_ns >= _SMALLEST_SHARE * wall_ns else None), wall_ns


def _by_time(idle: IdleTime) -> list[Cause]:
    total_ns = {cause: sum(row.total_ns for row in idle.causes if row.cause == cause) for cause in CAUSES}
    return sorted((cause for cause in CAUSES if total_ns[cause]), key=lambda cause: -total_ns[cause])


def _cause_row(cause: Cause, idle: IdleTime, steps: int, wall_ns: int) -> tuple[Cell, ...]:
    rows = [row for row in idle.causes if row.cause == cause]
    total_ns = sum(row.total_ns for row in rows)
    return (
        Cell(CAUSE_WORDS[cause]),
        Cell(duration(total_ns / steps)),
        Cell(format_percent(total_ns / wall_ns)),
        Cell(per_step(sum(row.count for row in rows), steps)),
        Cell(duration(max(row.max_ns for row in rows))),
    )


def per_step(count: int, steps: int) -> str:
    """Return how often something happens per step, or in how many steps if not in each."""
    if count < steps:
        return f"{count} in {steps}"
    return figures(count / steps)


def _kernels(idle: IdleTime) -> str:
    if idle.kernels < 2:
        return ""
    share = format_percent(idle.short_kernels / idle.kernels)
    return f"{share} of {idle.kernels:,} kernels run for less than 5 µs, about what launching one takes"


def details(run: RunReport, top: int) -> Table | None:
    """Return what ran while the run was idle, largest first; None if unknown or too little."""
    idle, wall_ns = _known(run)
    if idle is None:
        return None
    steps, left = len(steps_of(run)), idle.causes[top:]
    return Table(
        "What ran in idle time (mean per step and rank)",
        (
            Column("what", "name"),
            Column("in", "name"),
            Column("cause", "words"),
            Column("pauses"),
            Column("time"),
            Column("% of step"),
        ),
        [
            (
                Cell(escape_unprintable(row.detail)),
                Cell(MISSING if row.context is None else escape_unprintable(row.context)),
                Cell(CAUSE_WORDS[row.cause]),
                Cell(per_step(row.count, steps)),
                Cell(duration(row.total_ns / steps)),
                Cell(format_percent(row.total_ns / wall_ns)),
            )
            for row in idle.causes[:top]
        ],
        f"{len(left)} more, {duration(sum(row.total_ns for row in left) / steps)}" if left else "",
    )
