"""Writes the points of all series as CSV, one line a world size of a series."""

from typing import TextIO

from perfkit.report.dataframes import POINT_COLUMNS, point_rows
from perfkit.report.exporters.csv_rows import write_rows
from perfkit.schema.report import Report


def write(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  every point is written
    """Write every point of `report` to `stream`; times in ns, an empty cell is "not known"."""
    write_rows(POINT_COLUMNS, point_rows(report), stream)
