"""Writes tables as CSV, escaped against formula injection. Times are in ns; an empty cell is unknown."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final, TextIO

from msgspec.structs import fields

from perfkit.report.table_rows import (
    DIMENSION_COLUMNS,
    GATHER_COLUMNS,
    IDLE_COLUMNS,
    ISSUED_COLUMNS,
    OPTION_COLUMNS,
    PIPELINE_COLUMNS,
    POINT_COLUMNS,
    ROOFLINE_COLUMNS,
    STEP_COLUMNS,
    Value,
    dimension_rows,
    gather_rows,
    idle_rows,
    issued_rows,
    option_rows,
    pipeline_rows,
    point_rows,
    roofline_rows,
    step_rows,
)
from perfkit.schema.benchmark import (
    CollectiveBenchmark,
    InputBenchmark,
    InputMeasurement,
    InputSeries,
    Measurement,
    Series,
)
from perfkit.schema.report import Report
from perfkit.schema.tools import ExternalTable
from perfkit.util.formatting import escape_unprintable

_FORMULAS: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""Some spreadsheets skip leading blanks, and treat the full-width forms like the others."""


def escape_formula(value: Value) -> Value:
    """Return `value`, with an apostrophe before text that a spreadsheet would run as a formula."""
    if not isinstance(value, str):
        return value
    text = escape_unprintable(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULAS) else text


def write_steps(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per step and rank."""
    _write_records(STEP_COLUMNS, step_rows(report), stream)


def write_collectives(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per dimension, operator, phase and layer of collective and rank."""
    _write_records(ISSUED_COLUMNS, issued_rows(report), stream)


def write_dimensions(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per dimension of a run's communication."""
    _write_records(DIMENSION_COLUMNS, dimension_rows(report), stream)


def write_gathers(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per phase and layer that gathers sharded parameters, and rank."""
    _write_records(GATHER_COLUMNS, gather_rows(report), stream)


def write_idle(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per cause and detail of idle time and rank."""
    _write_records(IDLE_COLUMNS, idle_rows(report), stream)


def write_roofline(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per operator and shapes."""
    _write_records(ROOFLINE_COLUMNS, roofline_rows(report), stream)


def write_points(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per world size of each scaling series."""
    _write_records(POINT_COLUMNS, point_rows(report), stream)


def write_options(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per value of each option that runs are compared by."""
    _write_records(OPTION_COLUMNS, option_rows(report), stream)


def write_pipelines(report: Report, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per rank of each pipeline."""
    _write_records(PIPELINE_COLUMNS, pipeline_rows(report), stream)


def write_external(table: ExternalTable, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write all rows of another tool's table."""
    _write([table.columns, *table.rows], stream)


def write_measurements(record: CollectiveBenchmark, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per measured collective and size."""
    kind, one = fields(Series), fields(Measurement)
    series = [field.name for field in kind]
    own = [field.name for field in one if field.name not in ("series", "samples_ns", "interval_ns")]
    rows = (
        [
            *(getattr(record.series[row.series], name) for name in series),
            *(getattr(row, name) for name in own),
            len(row.samples_ns),
            *(row.interval_ns or (None, None)),
        ]
        for row in record.measurements
    )
    _write(chain([[*series, *own, "repeats", "low_ns", "high_ns"]], rows), stream)


def write_loads(record: InputBenchmark, stream: TextIO, *, top: int) -> None:  # noqa: ARG001  writes all rows
    """Write one row per way to read and state of the page cache."""
    series = [field.name for field in fields(InputSeries) if field.name != "layout"]
    own = [
        field.name
        for field in fields(InputMeasurement)
        if field.name not in ("series", "passes", "interval_ns", "ranks")
    ]
    rows = (
        [
            *(getattr(record.series[row.series], name) for name in series),
            " ".join(f"{name}={value}" for name, value in record.series[row.series].layout.items()),
            *(getattr(row, name) for name in own),
            len(row.passes),
            *(row.interval_ns or (None, None)),
        ]
        for row in record.measurements
    )
    _write(chain([[*series, "layout", *own, "passes", "low_ns", "high_ns"]], rows), stream)


def _write_records(columns: Sequence[str], rows: Iterable[Mapping[str, Value]], stream: TextIO) -> None:
    _write(chain([columns], ([row[column] for column in columns] for row in rows)), stream)


def _write(rows: Iterable[Sequence[Value]], stream: TextIO) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([escape_formula(value) for value in row] for row in rows)
