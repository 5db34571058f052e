"""Tables of a benchmark against an earlier one."""

from itertools import groupby
from typing import Final

from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.benchmark.collectives import CollectiveBenchmark, CollectiveChange
from perfkit.util.formatting import MISSING, duration, escape_unprintable, percent_change

_REMARK: Final = (
    "interval: of the ratio, over the repeats of two launches; how launches differ it does not cover (--assume-noise)"
)


def changes(record: CollectiveBenchmark) -> list[Table]:
    """Return a table per series: the time of each size before and after."""
    if record.comparison is None:
        return []
    columns = (
        Column("size (B)"),
        Column("before"),
        Column("after"),
        Column("ratio"),
        Column("95 % interval"),
        Column("change", "words"),
    )
    where = escape_unprintable(record.comparison.path)
    return [
        Table(f"{series}, against {where}", columns, [_row(change) for change in rows], _REMARK)
        for series, rows in groupby(record.comparison.changes, key=lambda change: change.series)
    ]


def _row(change: CollectiveChange) -> tuple[Cell, ...]:
    low_high = MISSING if change.interval is None else f"{change.interval[0]:.2f} to {change.interval[1]:.2f}"
    return (
        Cell(f"{change.bytes:,}"),
        Cell(duration(change.before_ns)),
        Cell(duration(change.after_ns)),
        Cell(f"{change.ratio:.3f}"),
        Cell(low_high),
        _verdict(change),
    )


def _verdict(change: CollectiveChange) -> Cell:
    if not change.significant:
        return Cell("" if change.significant is None else "within noise", tone="faint")
    return Cell(percent_change(change.ratio), tone="warning" if change.ratio > 1 else "good")
