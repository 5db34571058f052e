"""Collect rows of the tables into the columns of `Events`."""

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.events import (
    LONGEST_NS,
    NEGATIVE_DURATION,
    NO_DURATION,
    NO_START,
    TOO_LONG,
    UNKNOWN,
    EventKind,
    Repair,
)
from perfkit.trace.growable_array import GrowableArray
from perfkit.trace.intervals import Ints, distinct
from perfkit.trace.lanes import Id
from perfkit.trace.nsys.names import Names, Texts
from perfkit.trace.timestamps import LIMIT_NS

UNFINISHED: Final = Repair("range", "without an end, skipped", skips_events=True)
"""The recording ended first."""
_DTYPES: Final[dict[str, type[np.generic]]] = {  # wider if need be
    "kind": np.uint8,
    "name": np.int32,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "thread": np.int16,
    "correlation": np.int32,
    "category": np.uint8,
}
_PID_BITS: Final = 24
"""A `globalTid` is the host, the process and the thread: 16, 24 and 24 bits."""
_MOST_DEVICE: Final = (1 << 16) - 1
_MOST_STREAM: Final = (1 << 32) - 1
_GIVEN: Final = -2
"""Names that are known already are `_GIVEN - index` in the column of texts' numbers."""


def process_id(global_id: Any) -> Any:
    """Return the process in a `globalPid` or `globalTid`, or in each of a column."""
    return (global_id >> _PID_BITS) & ((1 << _PID_BITS) - 1)


class Columns:
    """The events of one process.

    Args:
        base_ns: the instant that times count from.
    """

    def __init__(self, base_ns: int) -> None:
        self._base_ns = base_ns
        self._columns = {name: GrowableArray(dtype) for name, dtype in _DTYPES.items()}
        self._threads: dict[tuple[Id, Id], int] = {}
        self.names = Names()
        self.rows = 0
        self.counts: Counter[EventKind] = Counter()
        self.repaired: Counter[Repair] = Counter()
        self.categories: list[str] = []

    def add(self, kind: EventKind, category: str, times: Ints, **columns: NDArray[Any]) -> NDArray[np.bool_]:
        """Add events; return which have a usable start, and were therefore added.

        Args:
            times: start and end, shape (2, n).
            columns: `thread`, as `host_threads` or `device_threads` return it; `name`, what
                `text` or `given` returns; and `correlation`, unless there is none.
        """
        self.counts[kind] += times.shape[1]
        start_ns, end_ns, usable = self._spans(*times)
        values: dict[str, NDArray[Any]] = {"start_ns": start_ns, "end_ns": end_ns}
        values |= {key: column[usable] for key, column in columns.items()}
        correlation = values.get("correlation", np.full(len(start_ns), UNKNOWN, np.int64))
        values["correlation"] = np.where(correlation > 0, correlation, UNKNOWN)  # CUPTI numbers from 1
        values["kind"] = np.full(len(start_ns), kind, np.uint8)
        values["category"] = np.full(len(start_ns), self._category(category), np.uint8)
        for key, column in self._columns.items():
            column.extend(values[key])
        self.rows += len(start_ns)
        return usable

    def _category(self, category: str) -> int:
        if category not in self.categories:
            self.categories.append(category)
        return self.categories.index(category)

    def _spans(self, start: Ints, end: Ints) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        """Return starts and ends of the events with a usable start, and a mask of these."""
        usable = np.abs(np.maximum(start, -LIMIT_NS)) < LIMIT_NS
        start, end = start[usable], end[usable]
        has_end = np.abs(np.maximum(end, -LIMIT_NS)) < LIMIT_NS
        duration = np.where(has_end, end - np.where(has_end, start, 0), 0)
        negative, too_long = duration < 0, duration > LONGEST_NS
        for repair, count in (
            (NO_START, np.count_nonzero(~usable)),
            (NO_DURATION, np.count_nonzero(~has_end)),
            (NEGATIVE_DURATION, np.count_nonzero(negative)),
            (TOO_LONG, np.count_nonzero(too_long)),
        ):
            self.repaired[repair] += int(count)
        start = start + self._base_ns
        return start, start + np.where(negative | too_long, 0, duration), usable

    @staticmethod
    def text(numbers: Ints) -> Ints:
        """Return what stands for names by the numbers of their texts, of which none is negative."""
        return np.maximum(numbers, UNKNOWN)

    def given(self, name: str) -> int:
        """Return what stands for a name that is known already."""
        return _GIVEN - self.names.add(name)

    def host_threads(self, global_tid: Ints) -> NDArray[np.int32]:
        return self._interned(global_tid, lambda one: (int(process_id(one)), one & ((1 << _PID_BITS) - 1)))

    def device_threads(self, device: Ints, stream: Ints) -> NDArray[np.int32]:
        key = np.clip(device, 0, _MOST_DEVICE) << 32 | np.clip(stream, 0, _MOST_STREAM)
        return self._interned(key, lambda one: (one >> 32, one & _MOST_STREAM))

    def _interned(self, key: Ints, thread_of: Callable[[int], tuple[Id, Id]]) -> NDArray[np.int32]:
        keys = distinct(key)
        numbers = [self._threads.setdefault(thread_of(one), len(self._threads)) for one in keys.tolist()]
        return np.array(numbers or [0], np.int32)[np.searchsorted(keys, key)]

    @property
    def threads(self) -> tuple[tuple[Id, Id], ...]:
        return tuple(self._threads)

    def build(self) -> dict[str, NDArray[Any]]:
        """Return the columns, with the numbers of texts as names; nothing can be added afterwards."""
        return {key: column.build() for key, column in self._columns.items()}


def name_events(name: NDArray[Any], texts: Texts) -> NDArray[np.int32]:
    """Return the index of each event's name."""
    named = np.asarray(_GIVEN - name, np.int32)
    is_text = name >= UNKNOWN
    named[is_text] = texts.of(name[is_text])[0]
    return named


def text_numbers(name: NDArray[Any]) -> Ints:
    """Return the numbers of the texts that events are called by."""
    return distinct(name[name >= UNKNOWN].astype(np.int64))
