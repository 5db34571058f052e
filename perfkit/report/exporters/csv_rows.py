"""Rows as CSV that no spreadsheet runs."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TextIO

from perfkit.report.dataframes import Value
from perfkit.util.formatting import escape_unprintable

_FORMULAS: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""Some spreadsheets pass over blanks, and take the wide forms for the others."""


def escape_formula(value: Value) -> Value:
    """Return `value`, with an apostrophe before text that a spreadsheet would take for a formula."""
    if not isinstance(value, str):
        return value
    text = escape_unprintable(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULAS) else text


def write_rows(columns: Sequence[str], rows: Iterable[Mapping[str, Value]], stream: TextIO) -> None:
    """Write a table to `stream`; an empty cell is "not known"."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([escape_formula(row[column]) for column in columns])
