"""Writes the steps of a report as CSV, one line a step of a rank."""

from typing import TextIO

from perfkit.report.dataframes import STEP_COLUMNS, step_rows
from perfkit.report.exporters.csv_rows import write_rows
from perfkit.schema.report import Report


def write(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  every step is written
    """Write every step of `report` to `stream`; times in ns, an empty cell is "not known"."""
    write_rows(STEP_COLUMNS, step_rows(report), stream)
