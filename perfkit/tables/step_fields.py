"""Columns of files that tables of steps and of ranks share."""

from typing import Final

from perfkit.records.common import CATEGORIES
from perfkit.tables.aggregates import ACTIVE
from perfkit.tables.specification import Field, data


def _exposed(category: str) -> Field:
    return data(f"exposed_{category}_ns", int, lambda row: getattr(row.of.exposed_ns, category))


def _total(category: str) -> Field:
    return data(f"total_{category}_ns", int, lambda row: getattr(row.of.total_ns, category))


LOADS: Final = (
    data("count", int, lambda row: row.of.loads.count),
    data("sum_ns", int, lambda row: row.of.loads.sum_ns),
    data("max_ns", int, lambda row: row.of.loads.max_ns),
)
TIMES: Final = (
    data("wall_ns", int, lambda row: row.of.wall_ns),
    *map(_exposed, CATEGORIES),
    *map(_total, ACTIVE),
    *(data(f"loads_{field.key}", int, field.value) for field in LOADS if field.value),
)
"""Of a step: what is summed over the steps of a rank."""
