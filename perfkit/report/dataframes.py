"""The tables of a report as pandas DataFrames. pandas is imported lazily."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perfkit.errors import StoreError
from perfkit.records.report import Report
from perfkit.report import LISTINGS, listing
from perfkit.tables.specification import Listing, Value

if TYPE_CHECKING:
    from pandas import DataFrame


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
    return DataFrames(**{name: dataframe(report, listing(name)) for name in LISTINGS})


def dataframe(report: Report, table: Listing) -> "DataFrame":
    """Return a table of a report as a DataFrame, integers as such.

    Raises:
        StoreError: An integer does not fit into 64 bits with a sign: those of a report may add up to that.
    """
    import pandas as pd

    columns = table.in_files
    frame = pd.DataFrame(
        [list(map(_encodable, row)) for row in table.values(report)], columns=[one.key for one in columns]
    )
    integers = {one.key: "Int64" if one.may_be_unknown else "int64" for one in columns if one.is_integer}
    try:
        if any(frame[column].dtype == "uint64" for column in integers):  # which pandas would wrap to negative numbers
            raise OverflowError
        return frame.astype(integers)
    except OverflowError as error:
        raise StoreError(
            "the report has numbers that do not fit into signed 64-bit integers, as tables need"
        ) from error


def _encodable(value: Value) -> Value:
    """Escape lone surrogates: with pyarrow installed, pandas stores text as UTF-8."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
