"""Time of kernels and host operators, by name."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.kinds.classify import data_loading_rows, in_compilation, nested_on_thread
from perfkit.engine.steps.windows import Steps
from perfkit.records.common import Category, Observation
from perfkit.records.rank import OTHER_NAMES, OperatorStat
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints

if TYPE_CHECKING:
    from perfkit.engine.trace_context import TraceContext

_CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
MOST_OPERATORS: Final = 5_000
"""Most names that are listed of a trace: some programs put a counter into each."""
_LARGEST: Final = 1 << 38
"""Largest size of one run: 30 million such sum up to what a column holds, and a trace has fewer runs of a name."""

_COMPUTE, _COMMUNICATION, _MEMCPY, _DATA_LOADING, _OVERHEAD = range(5)


def tabulate_operators(trace: "TraceContext") -> tuple[list[OperatorStat], int]:
    """Sum kernels and copies by name or, on a CPU-only trace, the self time of host operators; largest first.

    Returns:
        A row for each name and category, at most `MOST_OPERATORS` and one per category for all others, and the number
        of names and categories.
    """
    events, names, device, steps = trace.events, trace.names, trace.device, trace.steps
    if len(device.row):
        in_steps = steps.device_step >= 0
        category = np.select([device.is_copy, device.is_communication], [_MEMCPY, _COMMUNICATION], _COMPUTE)[in_steps]
        rows = device.row[in_steps]
        duration_ns = events.end_ns[rows] - events.start_ns[rows]
        blocks = _bounded(math.prod(one.grid) if one.grid else -1 for one in events.device_args.launches)
        size = blocks[events.device_args.launch_of(rows)]
        return _sum(events, rows, category, duration_ns, size, steps, steps.device_step[in_steps])
    rows = events.rows(EventKind.OPERATOR)
    rows = rows[steps.within(events.start_ns[rows])]
    communicating = names.communication_operator[events.name[rows]]
    if trace.is_light:
        rows, communicating = rows[communicating], communicating[communicating]
    loading = nested_on_thread(events, rows, data_loading_rows(events, names))
    compiling = in_compilation(events, names, rows)
    kinds = [_DATA_LOADING, _COMMUNICATION, _OVERHEAD]
    category = np.select([loading, communicating, compiling], kinds, _COMPUTE)
    step = np.searchsorted(steps.bounds, events.start_ns[rows], side="right") - 1
    inputs = events.operator_args.distinct_inputs
    size = _bounded(-1 if one.dims is None else _count(one.dims) for one in inputs)[
        events.operator_args.inputs_of(rows)
    ]
    return _sum(events, rows, category, trace.activity.self_ns[rows], size, steps, step)


def _count(dims: list[Any], depth: int = 2) -> int:
    """Return how many elements inputs have: tensors, each a list of sizes, lists of tensors, and others."""
    if dims and all(isinstance(one, int) for one in dims):
        return math.prod(dims)
    return sum(_count(one, depth - 1) for one in dims if isinstance(one, list)) if depth else 0


def _bounded(sizes: Iterable[int]) -> Ints:
    """Return sizes as a column, -1 for what cannot be: their sum over all runs must fit. The last is that of row -1."""
    return np.array([size if 0 <= size <= _LARGEST else -1 for size in (*sizes, -1)], np.int64)


def _sum(
    events: Events, rows: Ints, category: Ints, duration_ns: Ints, sizes: Ints, steps: Steps, step: Ints
) -> tuple[list[OperatorStat], int]:
    keys, key = _distinct(events.name[rows] * np.int64(len(_CATEGORIES)) + category, len(events.names))
    count = np.bincount(key, minlength=len(keys))
    total_ns, max_ns, size = np.zeros_like(count), np.zeros_like(count), np.zeros_like(count)
    np.add.at(total_ns, key, duration_ns)
    np.add.at(size, key, sizes)
    size[key[sizes < 0]] = -1
    np.maximum.at(max_ns, key, duration_ns)
    at = np.zeros_like(count)  # of the longest, the place in `rows`: of equals the first
    longest = np.flatnonzero(duration_ns == max_ns[key])[::-1]
    at[key[longest]] = longest
    ordered = np.argsort(-total_ns, kind="stable")
    listed = [
        OperatorStat(
            name=events.names[keys[k] // len(_CATEGORIES)],
            category=_CATEGORIES[keys[k] % len(_CATEGORIES)],
            count=int(count[k]),
            total_ns=int(total_ns[k]),
            size=None if size[k] < 0 else int(size[k]),
            max_ns=int(max_ns[k]),
            max_step=steps.number[int(step[at[k]])],
            max_at_ns=int(events.start_ns[rows[at[k]]] - steps.bounds[step[at[k]]]),
        )
        for k in ordered[:MOST_OPERATORS].tolist()
    ]
    rest = ordered[MOST_OPERATORS:]
    return listed + _others(rest, keys[rest] % len(_CATEGORIES), count, total_ns, max_ns), len(keys)


def _distinct(key: Ints, names: int) -> tuple[Ints, NDArray[np.int32]]:
    """Return the distinct keys of names and categories, ascending, and each one's place among them."""
    used = np.zeros(names * len(_CATEGORIES), np.bool_)
    used[key] = True
    keys = np.flatnonzero(used)
    place = np.zeros(len(used), np.int32)
    place[keys] = np.arange(len(keys))
    return keys, place[key]


def _others(rows: Ints, category: Ints, count: Ints, total_ns: Ints, max_ns: Ints) -> list[OperatorStat]:
    """Return one row per category for the names that are not listed, so that sums over rows stay exact."""
    by_category = ((name, rows[category == place]) for place, name in enumerate(_CATEGORIES))
    return [
        OperatorStat(
            name=OTHER_NAMES,
            category=category,
            count=int(count[own].sum()),
            total_ns=int(total_ns[own].sum()),
            max_ns=int(max_ns[own].max()),
        )
        for category, own in by_category
        if len(own)
    ]


def names_cut(operators: list[OperatorStat], names: int) -> list[Observation]:
    """Return a finding if not all names are listed; the arguments are the results of `tabulate_operators`."""
    if names <= MOST_OPERATORS:
        return []
    total_ns = sum(row.total_ns for row in operators)
    others_ns = sum(row.total_ns for row in operators if row.name == OTHER_NAMES)
    share = others_ns / total_ns if total_ns else None
    return [
        Observation(
            "names_cut", {"names": names, "listed": MOST_OPERATORS, "others": names - MOST_OPERATORS, "share": share}
        )
    ]
