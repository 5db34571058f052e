"""Table of collectives beside computation."""

from perfkit.report.content.collectives.series import describe
from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.benchmark import CollectiveBenchmark, Overlap
from perfkit.util.formatting import MISSING, duration, whole_percent


def overlaps(record: CollectiveBenchmark) -> list[Table]:
    """Return a table per series: what matrix multiplications hide of each collective, and what both cost each other."""
    columns = (
        Column("size (B)"),
        Column("alone"),
        Column("GEMM"),
        Column("together"),
        Column("hidden"),
        Column("it slowed"),
        Column("GEMM slowed"),
    )
    return [
        Table(f"{describe(series)}, beside a GEMM that takes as long", columns, list(map(_row, rows)), _REMARK)
        for number, series in enumerate(record.series)
        if (rows := [row for row in record.overlaps if row.series == number])
    ]


_REMARK = "hidden: share of the shorter that ran in the time of the other; slowed: time beside the other / alone"


def _row(row: Overlap) -> tuple[Cell, ...]:
    return (
        Cell(f"{row.bytes:,}"),
        Cell(duration(row.communication_ns)),
        Cell(duration(row.compute_ns)),
        Cell(duration(row.together_ns)),
        Cell(whole_percent(row.hidden)),
        Cell(_slower(row.overlapped_communication_ns, row.communication_ns)),
        Cell(_slower(row.overlapped_compute_ns, row.compute_ns)),
    )


def _slower(beside_ns: float, alone_ns: float) -> str:
    return f"{beside_ns / alone_ns:.2f} ×" if alone_ns else MISSING
