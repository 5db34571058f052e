"""The document of another tool's table."""

from perfkit.base.formatting import MISSING, escape_unprintable, left_out
from perfkit.records.tools import ExternalTable
from perfkit.report.content.document import Document, Section
from perfkit.tables.specification import Column, Field, Kind, Table, make_table

_SHORT = {"(us)": " µs", "_pctg": " %", "_time": "", "non_compute": "other"}
_WHOLE = 100
"""Larger values are shown without decimals."""


def document(report: ExternalTable, top: int) -> Document:
    """Return the content of `report`, with at most `top` rows."""
    return Document("perfkit hta", [_section(report, top)])


def _section(report: ExternalTable, top: int) -> Section:
    ranks = f"{len(report.ranks)} ranks" if len(report.ranks) > 1 else f"rank {report.ranks[0]}"
    left = len(report.rows) - top
    common = {name.partition(".")[0] for name in report.columns if "." in name}
    title = f"{report.analysis}, {ranks}" + (f": {escape_unprintable(', '.join(sorted(common)))}" if common else "")
    columns = [_column(report, index) for index in range(len(report.columns))]
    table = make_table(title, report.rows, columns, _remark(report, left), top=top)
    # Without rows, the columns still say what was asked.
    table = table or Table(title, tuple(Column(one.title, one.kind) for one in columns), [], _remark(report, left))
    headline = f"As reported by {escape_unprintable(report.tool)}; times are rounded to whole microseconds."
    return Section(escape_unprintable(report.run), headline, "info", [table])


def _column(report: ExternalTable, index: int) -> Field:
    return Field(_title(report.columns[index]), lambda row: _shown(row[index]), _kind(report, index))


def _remark(report: ExternalTable, left: int) -> str:
    if not report.rows:
        return "no rows: it found nothing of the kind in this trace"
    return f"{left_out(left, 'row')}: use --top N, or -o FILE for all" if left > 0 else ""


def _title(name: str) -> str:
    """Return a column's name shortened for the terminal: HTA's own names are long."""
    short = name.rpartition(".")[2]
    for theirs, shown in _SHORT.items():
        short = short.replace(theirs, shown)
    return escape_unprintable(short.replace("_", " "))


def _kind(report: ExternalTable, place: int) -> Kind:
    return "words" if any(isinstance(row[place], str) for row in report.rows) else "number"


def _shown(value: str | float | None) -> str:
    if value is None or value == "":
        return MISSING
    if isinstance(value, str):
        return escape_unprintable(value)
    if value == int(value):
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= _WHOLE else f"{value:.3g}"
