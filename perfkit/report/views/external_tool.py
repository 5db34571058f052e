"""Tables of another program's, on the terminal and as CSV."""

import csv
from typing import TextIO

from perfkit.report.content.document import Cell, Column, Document, Kind, Section, Table
from perfkit.report.exporters.csv_rows import guard
from perfkit.report.renderers import console
from perfkit.schema.external_tool import PeerTable
from perfkit.util.formatting import NONE, plain

_SHORT = {"(us)": " µs", "_pctg": " %", "_time": "", "non_compute": "other"}
_WHOLE = 100
"""Larger figures are shown without what is behind the point."""


def write_rich(report: PeerTable, stream: TextIO, *, top: int) -> None:
    """Draw `report` on the terminal."""
    console.draw(Document([], [_section(report, top)]), stream)


def write_csv(report: PeerTable, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  every row is written
    """Write all rows of `report`; an empty cell is "not known"."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([guard(name) for name in report.columns])
    for row in report.rows:
        writer.writerow([guard(value) if isinstance(value, str) else value for value in row])


def _section(report: PeerTable, top: int) -> Section:
    ranks = f"{len(report.ranks)} ranks" if len(report.ranks) > 1 else f"rank {report.ranks[0]}"
    left = len(report.rows) - top
    common = {name.partition(".")[0] for name in report.columns if "." in name}
    table = Table(
        f"{report.analysis}, {ranks}" + (f": {plain(', '.join(sorted(common)))}" if common else ""),
        tuple(Column(_title(name), _kind(report, place)) for place, name in enumerate(report.columns)),
        [tuple(Cell(_shown(value)) for value in row) for row in report.rows[:top]],
        f"{left:,} more rows: -o FILE has all, --top N more" if left > 0 else "",
    )
    headline = f"As {plain(report.tool)} has it; times are rounded to whole microseconds."
    return Section(plain(report.run), headline, "info", [table], [], [], [])


def _title(name: str) -> str:
    """Return a column's name short enough for a table of many: HTA's own are for files."""
    short = name.rpartition(".")[2]
    for theirs, shown in _SHORT.items():
        short = short.replace(theirs, shown)
    return plain(short.replace("_", " "))


def _kind(report: PeerTable, place: int) -> Kind:
    return "words" if any(isinstance(row[place], str) for row in report.rows) else "number"


def _shown(value: str | float | None) -> str:
    if value is None or value == "":
        return NONE
    if isinstance(value, str):
        return plain(value)
    if value == int(value):
        return str(int(value))
    return f"{value:.0f}" if abs(value) >= _WHOLE else f"{value:.3g}"
