"""Writes the tables that there are as CSV as Parquet too: the DataFrames of `Report.tables()`, with their types.

A column has its type whatever is known of it: a file in which nothing is still fits others of the same table.
"""

from collections.abc import Iterable
from typing import BinaryIO

from perfkit.errors import LaunchEnvironmentError, StoreError
from perfkit.report.dataframes import (
    OPTION_COLUMNS,
    POINT_COLUMNS,
    STEP_COLUMNS,
    Value,
    dataframe,
    kind,
    option_rows,
    point_rows,
    step_rows,
)
from perfkit.schema.report import Report


def require_pyarrow() -> None:
    """Check that Parquet can be written.

    Raises:
        LaunchEnvironmentError: it cannot.
    """
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise LaunchEnvironmentError(f"Parquet needs pyarrow ({error}): pip install 'perfkit[parquet]'") from error


def write_steps(report: Report, stream: BinaryIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write a row a step of a rank to `stream`; times in ns, null is "not known"."""
    _write(step_rows(report), STEP_COLUMNS, stream)


def write_points(report: Report, stream: BinaryIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write a row a world size of a series."""
    _write(point_rows(report), POINT_COLUMNS, stream)


def write_options(report: Report, stream: BinaryIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write a row a value of an option that runs are set side by side by."""
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
        raise StoreError(f"a run says what no Parquet file can hold ({reason}): write CSV or JSON") from error
    # Parquet asks where it is in a file, which a pipe does not know.
    whole = pyarrow.BufferOutputStream()
    parquet.write_table(table, whole)
    stream.write(whole.getvalue())
