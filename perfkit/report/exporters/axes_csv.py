"""Writes runs side by side as CSV, one line a value of an option that they differ in."""

from typing import TextIO

from perfkit.report.dataframes import AXIS_COLUMNS, axis_rows
from perfkit.report.exporters.csv_rows import write_rows
from perfkit.schema.report import Report


def write(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  every value is written
    """Write every row of every axis of `report` to `stream`; times in ns, an empty cell is "not known"."""
    write_rows(AXIS_COLUMNS, axis_rows(report), stream)
