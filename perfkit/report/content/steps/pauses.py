"""The table of a run's checkpoints, evaluations and logging."""

from typing import Final

from perfkit.report.content.document import Cell, Column, Table
from perfkit.report.content.run_tables import rank_label
from perfkit.schema.per_run.pauses import RankPauses
from perfkit.schema.run import RunReport
from perfkit.util.formatting import MISSING, duration, left_out, size

_MOST_RANKS: Final = 16
"""Rows of each phase."""


def pauses(run: RunReport) -> Table | None:
    """Return the pauses by phase and rank, those of most time of each phase; None without any."""
    if not run.pauses:
        return None
    shown: list[RankPauses] = []
    for phase in dict.fromkeys(row.phase for row in run.pauses):
        rows = [row for row in run.pauses if row.phase == phase]
        longest = sorted(rows, key=lambda row: -row.total_ns)[:_MOST_RANKS]
        shown += [row for row in rows if row in longest]
    left = len(run.pauses) - len(shown)
    remark = (
        "no part of the steps; recorded: their time within the windows of recorded steps; others wait: exposed "
        "communication of the rank that waits most, in that time"
    )
    return Table(
        "Checkpoints, evaluation and logging",
        (
            Column("phase", "words"),
            Column("rank"),
            Column("count"),
            Column("total"),
            Column("longest"),
            Column("written"),
            Column("recorded"),
            Column("others wait"),
        ),
        [_row(row) for row in shown],
        f"{remark}; {left_out(left, 'rank')}" if left else remark,
    )


def _row(row: RankPauses) -> tuple[Cell, ...]:
    return (
        Cell(f"{row.phase}{_how(row)}"),
        Cell(rank_label(row.rank)),
        Cell(f"{row.count:,}"),
        Cell(duration(row.total_ns)),
        Cell(duration(row.max_ns)),
        Cell(size(row.bytes)),
        Cell(duration(row.recorded_ns) if row.recorded else MISSING),
        Cell(duration(row.waited_ns)),
    )


def _how(row: RankPauses) -> str:
    if not row.asynchronous:
        return ""
    return " (asynchronous)" if row.asynchronous == row.count else f" ({row.asynchronous} asynchronous)"
