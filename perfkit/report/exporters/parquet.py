"""Writes the CSV tables as Parquet, with the types of the DataFrames of `Report.tables()`.

A column has the same type even if all its values are unknown, so that files of one table can be concatenated.
"""

from collections.abc import Iterable
from typing import BinaryIO

from perfkit.errors import LaunchEnvironmentError, StoreError
from perfkit.report.dataframes import dataframe, kind
from perfkit.report.table_rows import (
    IDLE_COLUMNS,
    OPTION_COLUMNS,
    POINT_COLUMNS,
    STEP_COLUMNS,
    Value,
    idle_rows,
    option_rows,
    point_rows,
    step_rows,
)
from perfkit.schema.report import Report
from perfkit.util.formatting import install_extra


def require_pyarrow() -> None:
    """Check that pyarrow is installed.

    Raises:
        LaunchEnvironmentError: it is not.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise LaunchEnvironmentError(f"Parquet needs pyarrow ({error}): {install_extra('parquet')}") from error


def write_steps(report: Report, stream: BinaryIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per step and rank; times in ns, null if unknown."""
    _write(step_rows(report), STEP_COLUMNS, stream)


def write_idle(report: Report, stream: BinaryIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per cause and detail of idle time and rank; times in ns."""
    _write(idle_rows(report), IDLE_COLUMNS, stream)


def write_points(report: Report, stream: BinaryIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per world size of a series."""
    _write(point_rows(report), POINT_COLUMNS, stream)


def write_options(report: Report, stream: BinaryIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per value of an option that runs are compared by."""
    _write(option_rows(report), OPTION_COLUMNS, stream)


def _write(rows: Iterable[dict[str, Value]], columns: tuple[str, ...], stream: BinaryIO) -> None:
    import pyarrow
    from pyarrow import parquet

    types = {"text": pyarrow.string(), "integer": pyarrow.int64(), "number": pyarrow.float64()}
    schema = pyarrow.schema([(column, types[kind(column, columns)]) for column in columns])
    try:
        table = pyarrow.Table.from_pandas(dataframe(rows, columns), schema, preserve_index=False)
    except (pyarrow.ArrowException, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise StoreError(f"a value does not fit into a Parquet file ({reason}): write CSV or JSON") from error
    # The Parquet writer needs a seekable stream, which a pipe is not.
    buffer = pyarrow.BufferOutputStream()
    parquet.write_table(table, buffer)
    stream.write(buffer.getvalue())
