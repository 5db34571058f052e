"""Table of a benchmark of input against an earlier one."""

from perfkit.report.content.changes import change_cells, change_columns
from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.benchmark import InputBenchmark
from perfkit.util.formatting import escape_unprintable


def changes(record: InputBenchmark) -> list[Table]:
    """Return the time per load of each series before and after; empty without an earlier file."""
    if record.comparison is None or not record.comparison.changes:
        return []
    rows = [
        (Cell(escape_unprintable(change.series)), Cell(change.cache), *change_cells(change))
        for change in record.comparison.changes
    ]
    columns = (Column("loads", "words"), Column("cache", "words"), *change_columns())
    remark = "interval: of the ratio, over the passes of two launches; how launches differ it does not cover"
    return [Table(f"Time per load, against {escape_unprintable(record.comparison.path)}", columns, rows, remark)]
