"""Several records of the step log become one."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from perfkit.schema.monitor.columns import CHECK, COLUMNS, LOSS_GIVEN, STEP_DTYPE, UNKNOWN, StepColumn

Records = NDArray[np.void]
"""Of the dtype `STEP_DTYPE`."""
Values = NDArray[Any]
Mask = NDArray[np.bool_]


def roll_up(records: Records) -> Records:
    """Return half as many records, each of two that follow each other; a last one without a partner stays as it is.

    `check` is not valid in what is returned.
    """
    pairs = len(records) // 2
    first, second = records[: 2 * pairs : 2], records[1 : 2 * pairs : 2]
    merged = np.zeros(pairs, STEP_DTYPE)
    second_longer = second["longest_ns"] > first["longest_ns"]
    for column in COLUMNS:
        if column.name != CHECK:
            merged[column.name] = _merge(column, first, second, second_longer)
    return np.concatenate([merged, records[2 * pairs :]])


def _merge(column: StepColumn, first: Records, second: Records, second_longer: Mask) -> Values:
    a, b = first[column.name], second[column.name]
    unknown_a, unknown_b = _unknown(column, first), _unknown(column, second)
    match column.rolled_up:
        case "first":
            return np.asarray(a)
        case "newest":
            return np.where(unknown_b, a, b)
        case "longest":
            return np.where(second_longer, b, a)
        case "sum":
            return np.asarray(a + b)
        case "same":
            return np.where(a == b, a, UNKNOWN)
        case "any":
            both = a | b
        case "max":
            both = np.maximum(a, b)
        case "mean":
            both = _mean(a, b, first["steps"], second["steps"])
    return np.where(unknown_a, b, np.where(unknown_b, a, both))


def _mean(a: Values, b: Values, steps_a: Values, steps_b: Values) -> Values:
    """Return the mean per step; of integers rounded, and without overflow."""
    share = steps_b / (steps_a.astype(np.float64) + steps_b)
    if a.dtype.kind == "i":
        return a + np.rint((b - a) * share).astype(np.int64)
    return ((1 - share) * a + share * b).astype(a.dtype)


def _unknown(column: StepColumn, records: Records) -> Mask:
    values = records[column.name]
    if column.name == "loss":  # of a loss that was given, NaN is its value
        return np.asarray((records["flags"] & LOSS_GIVEN) == 0)
    if column.unknown == "NaN":
        return np.asarray(np.isnan(values))
    return np.asarray(values == UNKNOWN) if column.unknown == "-1" else np.zeros(len(records), np.bool_)
