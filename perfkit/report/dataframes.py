"""The tables of a report as pandas DataFrames, and the types of their columns. pandas is imported lazily."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from perfkit.errors import StoreError
from perfkit.report.table_rows import (
    COLLECTIVE_COLUMNS,
    DIMENSION_COLUMNS,
    FINDING_COLUMNS,
    GATHER_COLUMNS,
    HOLDER_COLUMNS,
    IDLE_COLUMNS,
    ISSUED_COLUMNS,
    LOAD_COLUMNS,
    MEMORY_COLUMNS,
    OPERATOR_COLUMNS,
    OPTION_COLUMNS,
    PATH_COLUMNS,
    PIPELINE_COLUMNS,
    POINT_COLUMNS,
    RANK_COLUMNS,
    ROOFLINE_COLUMNS,
    STEP_COLUMNS,
    Value,
    collective_rows,
    dimension_rows,
    finding_rows,
    gather_rows,
    holder_rows,
    idle_rows,
    issued_rows,
    load_rows,
    memory_rows,
    operator_rows,
    option_rows,
    path_rows,
    pipeline_rows,
    point_rows,
    rank_rows,
    roofline_rows,
    step_rows,
)
from perfkit.schema.report import Report

if TYPE_CHECKING:
    from pandas import DataFrame

_NULLABLE_INTEGERS: Final[tuple[str, ...]] = (
    "max_step",
    "max_at_ns",
    "rank",
    "step",
    "group_size",
    "groups",
    "bytes",
    "threads",
    "reserved_bytes",
    "limit_bytes",
    "load_max_ns",
    "ideal_ns",
    "imbalance_ns",
    "communication_ns",
    "bound_ns",
)
_INTEGERS: Final = ("count", "loads_count", "allocated_bytes", "unsized", "late")

Kind = Literal["text", "integer", "number"]
_TEXT: Final = frozenset(
    {"run", "series", "kind", "oversubscribed", "measured_on", "resampled", "option", "name", "value"}
    | {"cause", "detail", "context"},
)
_COUNTS: Final = frozenset({"world_size", "nodes", "batch_size", "repeats", "loads_count", "count"}).union(
    _NULLABLE_INTEGERS
)


def kind(column: str, columns: Sequence[str]) -> Kind:
    """Return the type of a column of the steps, idle time, points or options, whatever its values."""
    if column in _TEXT:
        return "text"
    # Times over several runs are medians, which may be fractions of a nanosecond.
    whole = column.endswith("_ns") and columns in (STEP_COLUMNS, IDLE_COLUMNS)
    return "integer" if column in _COUNTS or whole else "number"


@dataclass(frozen=True)
class DataFrames:
    """DataFrames of a report; times in ns, missing values if unknown."""

    steps: "DataFrame"
    """One row per step and rank: window, exposed and total time by category, loads."""
    ranks: "DataFrame"
    """One row per rank: the sums over its steps (`loads_max_ns`: the largest)."""
    operators: "DataFrame"
    """One row per kernel or operator and rank."""
    collectives: "DataFrame"
    """One row per operator, group, size and type of collective and rank."""
    dimensions: "DataFrame"
    """One row per dimension of parallelism, on one host or across hosts: sums over the run's `rank_steps` steps."""
    issued_collectives: "DataFrame"
    """One row per dimension, operator, phase and layer of collective and rank."""
    parameter_gathers: "DataFrame"
    """One row per phase and layer that gathers sharded parameters and rank: what exposed them."""
    loads: "DataFrame"
    """One row per step and rank: time spent loading data."""
    idle: "DataFrame"
    """One row per cause and detail of idle time and rank."""
    roofline: "DataFrame"
    """One row per operator and shapes over all ranks: what it needed, achieved, and could achieve at best."""
    critical_path: "DataFrame"
    """One row per kind and name of what is on the critical path of a run's steps: sums over the steps of the path."""
    memory: "DataFrame"
    """One row per step, device and rank: peak allocated memory, and when; empty if not recorded."""
    memory_holders: "DataFrame"
    """One row per category and origin of what is allocated at the peak of a device, and rank; likewise."""
    pipelines: "DataFrame"
    """One row per rank of a pipeline: its bubble and the parts of it, summed over `steps`; `pipeline` counts from 0."""
    findings: "DataFrame"
    """One row per finding."""
    points: "DataFrame"
    """One row per world size of a scaling series: estimates with their 95 % intervals, and efficiency factors."""
    options: "DataFrame"
    """One row per value of an option that otherwise identical runs differ in: steps, loads, read rates."""


def dataframes(report: Report) -> DataFrames:
    """Return the tables of `report` as pandas DataFrames."""
    return DataFrames(
        steps=dataframe(step_rows(report), STEP_COLUMNS),
        ranks=dataframe(rank_rows(report), RANK_COLUMNS),
        operators=dataframe(operator_rows(report), OPERATOR_COLUMNS),
        collectives=dataframe(collective_rows(report), COLLECTIVE_COLUMNS),
        dimensions=dataframe(dimension_rows(report), DIMENSION_COLUMNS),
        issued_collectives=dataframe(issued_rows(report), ISSUED_COLUMNS),
        parameter_gathers=dataframe(gather_rows(report), GATHER_COLUMNS),
        loads=dataframe(load_rows(report), LOAD_COLUMNS),
        idle=dataframe(idle_rows(report), IDLE_COLUMNS),
        roofline=dataframe(roofline_rows(report), ROOFLINE_COLUMNS),
        critical_path=dataframe(path_rows(report), PATH_COLUMNS),
        memory=dataframe(memory_rows(report), MEMORY_COLUMNS),
        memory_holders=dataframe(holder_rows(report), HOLDER_COLUMNS),
        pipelines=dataframe(pipeline_rows(report), PIPELINE_COLUMNS),
        findings=dataframe(finding_rows(report), FINDING_COLUMNS),
        points=dataframe(point_rows(report), POINT_COLUMNS),
        options=dataframe(option_rows(report), OPTION_COLUMNS),
    )


def dataframe(rows: Iterable[dict[str, Value]], columns: tuple[str, ...]) -> "DataFrame":
    """Return rows as a DataFrame of these columns, integers as such.

    Raises:
        StoreError: An integer does not fit into 64 bits with a sign: those of a report may add up to that.
    """
    import pandas as pd

    frame = pd.DataFrame([_encodable(row) for row in rows], columns=list(columns))
    integers = {c: "Int64" for c in _NULLABLE_INTEGERS if c in columns}
    # Times over several runs are medians, which may be fractions of a nanosecond.
    whole = () if columns in (POINT_COLUMNS, OPTION_COLUMNS) else columns
    integers |= {c: "int64" for c in whole if (c.endswith("_ns") or c in _INTEGERS) and c not in integers}
    try:
        if any(frame[column].dtype == "uint64" for column in integers):  # which pandas would wrap to negative numbers
            raise OverflowError
        return frame.astype(integers)
    except OverflowError as error:
        raise StoreError(
            "the report has numbers that do not fit into signed 64-bit integers, as tables need"
        ) from error


def _encodable(row: dict[str, Value]) -> dict[str, Value]:
    """Escape lone surrogates: with pyarrow installed, pandas stores text as UTF-8."""
    return {
        key: value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
        for key, value in row.items()
    }
