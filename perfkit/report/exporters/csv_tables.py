"""Writes tables as CSV, escaped against formula injection. Times are in ns; an empty cell is unknown."""

import csv
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, Final, TextIO

from perfkit.base.formatting import escape_unprintable
from perfkit.records.tools import ExternalTable
from perfkit.tables.specification import Listing, Value

_FORMULAS: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""Some spreadsheets skip leading blanks, and treat the full-width forms like the others."""


def escape_formula(value: Value) -> Value:
    """Return `value`, with an apostrophe before text that a spreadsheet would run as a formula."""
    if not isinstance(value, str):
        return value
    text = escape_unprintable(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULAS) else text


def write(record: Any, stream: TextIO, table: Listing) -> None:
    """Write all rows that a table has of `record`."""
    _write(chain([[column.key for column in table.in_files]], table.values(record)), stream)


def write_external(table: ExternalTable, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write all rows of another tool's table."""
    _write([table.columns, *table.rows], stream)


def _write(rows: Iterable[Sequence[Value]], stream: TextIO) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([escape_formula(value) for value in row] for row in rows)
