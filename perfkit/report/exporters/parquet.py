"""Writes the CSV tables as Parquet, with the types of the DataFrames of `Report.tables()`.

A column has the same type even if all its values are unknown, so that files of one table can be concatenated.
"""

from typing import BinaryIO

from perfkit.base.formatting import install_extra
from perfkit.errors import LaunchEnvironmentError, StoreError
from perfkit.records.report import Report
from perfkit.report.dataframes import dataframe
from perfkit.tables.specification import Listing


def require_pyarrow() -> None:
    """Check that pyarrow is installed.

    Raises:
        LaunchEnvironmentError: it is not.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise LaunchEnvironmentError(f"Parquet needs pyarrow ({error}): {install_extra('parquet')}") from error


def write(report: Report, stream: BinaryIO, table: Listing) -> None:
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
