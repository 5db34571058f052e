"""Time of kernels and host operators, by name."""

from typing import Final, get_args

import numpy as np

from perfkit.analysis.per_rank.breakdown import Activity
from perfkit.analysis.per_rank.classify import Device, Names, data_loading_rows, nested_on_thread
from perfkit.analysis.per_rank.steps import Steps
from perfkit.schema.common import Category
from perfkit.schema.rank import OperatorStat
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import Ints

_CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
_COMPUTE, _COMMUNICATION, _MEMCPY, _DATA_LOADING = range(4)


def tabulate_operators(
    events: Events, names: Names, device: Device, activity: Activity, steps: Steps
) -> list[OperatorStat]:
    """Sum kernels and copies by name or, on a CPU-only trace, the self time of host operators; largest first."""
    if len(device.row):
        in_steps = steps.device_step >= 0
        category = np.select([device.is_copy, device.is_communication], [_MEMCPY, _COMMUNICATION], _COMPUTE)[in_steps]
        rows = device.row[in_steps]
        return _sum(events, rows, category, events.end_ns[rows] - events.start_ns[rows])
    rows = events.rows(EventKind.OPERATOR)
    rows = rows[steps.within(events.start_ns[rows])]
    communicating = names.communication_operator[events.name[rows]]
    loading = nested_on_thread(events, rows, data_loading_rows(events, names))
    category = np.select([loading, communicating], [_DATA_LOADING, _COMMUNICATION], _COMPUTE)
    return _sum(events, rows, category, activity.self_ns[rows])


def _sum(events: Events, rows: Ints, category: Ints, duration_ns: Ints) -> list[OperatorStat]:
    key = events.name[rows] * np.int64(len(_CATEGORIES)) + category
    count = np.bincount(key, minlength=len(events.names) * len(_CATEGORIES))
    total_ns, max_ns = np.zeros_like(count), np.zeros_like(count)
    np.add.at(total_ns, key, duration_ns)
    np.maximum.at(max_ns, key, duration_ns)
    keys = np.flatnonzero(count)
    return [
        OperatorStat(
            name=events.names[k // len(_CATEGORIES)],
            category=_CATEGORIES[k % len(_CATEGORIES)],
            count=int(count[k]),
            total_ns=int(total_ns[k]),
            max_ns=int(max_ns[k]),
        )
        for k in keys[np.argsort(-total_ns[keys], kind="stable")].tolist()
    ]
