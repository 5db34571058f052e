"""Tables of a benchmark against an earlier one."""

from itertools import groupby
from typing import Final

from perfkit.report.content.changes import change_cells, change_columns
from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.benchmark import CollectiveBenchmark
from perfkit.util.formatting import escape_unprintable

_REMARK: Final = (
    "interval: of the ratio, over the repeats of two launches; how launches differ it does not cover (--assume-noise)"
)


def changes(record: CollectiveBenchmark) -> list[Table]:
    """Return a table per series: the time of each size before and after."""
    if record.comparison is None:
        return []
    columns = (Column("size (B)"), *change_columns())
    where = escape_unprintable(record.comparison.path)
    return [
        Table(
            f"{series}, against {where}",
            columns,
            [(Cell(f"{change.bytes:,}"), *change_cells(change)) for change in rows],
            _REMARK,
        )
        for series, rows in groupby(record.comparison.changes, key=lambda change: change.series)
    ]
