"""Writes tables as CSV and Parquet. Times are in ns; what is unknown is empty or null.

Text in CSV is escaped against formula injection. A column of a Parquet file has the type of the DataFrames of
`Report.tables()`, even if all its values are unknown, so that files of one table can be concatenated.
"""

import csv
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, BinaryIO, Final, TextIO

from perfkit.base.formatting import escape_unprintable, install_extra
from perfkit.errors import LaunchEnvironmentError, StoreError
from perfkit.records.report import Report
from perfkit.records.tools import ExternalTable
from perfkit.report.dataframes import dataframe
from perfkit.tables.specification import Listing, Value

_FORMULAS: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""Some spreadsheets skip leading blanks, and treat the full-width forms like the others."""


def escape_formula(value: Value) -> Value:
    """Return `value`, with an apostrophe before text that a spreadsheet would run as a formula."""
    if not isinstance(value, str):
        return value
    text = escape_unprintable(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULAS) else text


def write_csv(record: Any, stream: TextIO, table: Listing) -> None:
    """Write all rows that a table has of `record`."""
    _write(chain([[column.key for column in table.in_files]], table.values(record)), stream)


def write_external(table: ExternalTable, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write all rows of another tool's table."""
    _write([table.columns, *table.rows], stream)


def _write(rows: Iterable[Sequence[Value]], stream: TextIO) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([escape_formula(value) for value in row] for row in rows)


def require_pyarrow() -> None:
    """Check that pyarrow is installed.

    Raises:
        LaunchEnvironmentError: it is not.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise LaunchEnvironmentError(f"Parquet needs pyarrow ({error}): {install_extra('parquet')}") from error


def write_parquet(report: Report, stream: BinaryIO, table: Listing) -> None:
    """Write all rows of a table; times in ns, null if unknown."""
    import pyarrow
    from pyarrow import parquet

    types = [
        (
            column.key,
            pyarrow.int64() if column.is_integer else pyarrow.string() if column.is_text else pyarrow.float64(),
        )
        for column in table.in_files
    ]
    try:
        rows = pyarrow.Table.from_pandas(dataframe(report, table), pyarrow.schema(types), preserve_index=False)
    except (pyarrow.ArrowException, StoreError) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"a value does not fit into a Parquet file ({reason}): write CSV or JSON") from error
    # The Parquet writer needs a seekable stream, which a pipe is not.
    buffer = pyarrow.BufferOutputStream()
    parquet.write_table(rows, buffer)
    stream.write(buffer.getvalue())
