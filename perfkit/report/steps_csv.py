"""Writes the steps of a report as CSV, one line a step of a rank."""

import csv
from typing import TextIO

from perfkit.frames import STEP_COLUMNS, step_rows
from perfkit.model import Report
from perfkit.units import plain


def guard(value: str | int | None) -> str | int | None:
    """Return `value`, with an apostrophe before text that a spreadsheet would take for a formula."""
    if not isinstance(value, str):
        return value
    text = plain(value)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def write(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  every step is written
    """Write every step of `report` to `stream`; times in ns, an empty cell is "not known"."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(STEP_COLUMNS)
    for row in step_rows(report):
        writer.writerow([guard(row[column]) for column in STEP_COLUMNS])
