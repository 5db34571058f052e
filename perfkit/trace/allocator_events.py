"""Collect the allocators' records: the instants `[memory]` that torch.profiler writes with `profile_memory`."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec import Raw, Struct
from numpy.typing import NDArray

from perfkit.trace.event_decoding import RawInstant, all_integers
from perfkit.trace.events import UNKNOWN, AllocatorTimeline, Repair
from perfkit.trace.growable_array import GrowableArray
from perfkit.trace.intervals import Ints
from perfkit.trace.timestamps import to_nanoseconds

ALLOCATOR_RECORD: Final = "[memory]"
_DTYPES: Final[tuple[type[np.generic], ...]] = (*[np.int64] * 5, np.int16)
_LARGEST_BYTES: Final = 2**53
_MOST_DEVICES: Final = 16
INVALID_RECORD: Final = Repair("memory record", "without a usable time, device or total, skipped")
TOO_MANY_DEVICES: Final = Repair("memory record", f"of more than {_MOST_DEVICES} devices, skipped")


class _Args(Struct, gc=False, frozen=True):
    """The fields of an instant's `args` that are used, not validated."""

    allocated: Any = msgspec.field(name="Total Allocated", default=None)
    reserved: Any = msgspec.field(name="Total Reserved", default=None)
    change: Any = msgspec.field(name="Bytes", default=None)
    kind: Any = msgspec.field(name="Device Type", default=None)
    number: Any = msgspec.field(name="Device Id", default=None)
    address: Any = msgspec.field(name="Addr", default=None)


_LIST_DECODER: Final = msgspec.json.Decoder(list[_Args])
_DECODER: Final = msgspec.json.Decoder(_Args)
_NO_ARGS: Final = _Args()


class _Columns(NamedTuple):
    """The records of one device, in file order."""

    time_ns: GrowableArray
    allocated: GrowableArray
    reserved: GrowableArray
    change: GrowableArray
    address: GrowableArray
    thread: GrowableArray


class AllocatorEventCollector:
    """Collects the records of a trace, batch by batch."""

    def __init__(self, repaired: Counter[Repair]) -> None:
        self._repaired = repaired
        self._columns: dict[tuple[int, int], _Columns] = {}
        self._first: dict[tuple[int, int], tuple[int, int]] = {}
        """The earliest time of each device, and the bytes allocated before it."""

    def add(self, records: Sequence[RawInstant], thread: NDArray[np.int32]) -> None:
        """Add instants that are named `[memory]`, and the index of each one's thread."""
        time_ns, has_time = to_nanoseconds([record.ts for record in records])
        args = _decoded([record.args for record in records])
        kind, number = _counts([a.kind for a in args]), _counts([a.number for a in args])
        allocated, reserved = _counts([a.allocated for a in args]), _counts([a.reserved for a in args])
        change, address = _changes([a.change for a in args]), _counts([a.address for a in args])
        valid = has_time & (kind >= 0) & (allocated >= 0)
        self._repaired[INVALID_RECORD] += int((~valid).sum())
        for key in sorted(set(zip(kind[valid].tolist(), number[valid].tolist(), strict=True))):
            chosen = np.flatnonzero(valid & (kind == key[0]) & (number == key[1]))
            if key not in self._columns and len(self._columns) >= _MOST_DEVICES:
                self._repaired[TOO_MANY_DEVICES] += len(chosen)
                continue
            columns = self._columns.setdefault(key, _Columns(*map(GrowableArray, _DTYPES)))
            values = (time_ns, allocated, reserved, change, address, thread)
            for place, column in enumerate(columns):
                column.extend(np.asarray(values[place])[chosen])
            earliest = chosen[np.argmin(time_ns[chosen])]
            self._note_first(key, int(time_ns[earliest]), int(allocated[earliest]), args[earliest].change)

    def _note_first(self, key: tuple[int, int], time_ns: int, allocated: int, change: Any) -> None:
        if key in self._first and self._first[key][0] <= time_ns:
            return
        before = allocated - change if type(change) is int else UNKNOWN
        self._first[key] = (time_ns, before if 0 <= before < _LARGEST_BYTES else UNKNOWN)

    def threads(self) -> NDArray[Any]:
        """Return the index of each record's thread, as given, device by device."""
        return np.concatenate([np.zeros(0, np.int16), *(columns.thread.build() for _, columns in self._sorted())])

    def build(self, base_ns: int, thread: NDArray[Any]) -> dict[tuple[int, int], AllocatorTimeline]:
        """Return the timelines by type and number of the device, in order of absolute time; callable once.

        Args:
            base_ns: added to all times.
            thread: the final index of each record's thread, in the order of `threads`.
        """
        built, first = {}, 0
        for key, columns in self._sorted():
            records = len(columns.thread.build())
            built[key] = _from_columns(columns, base_ns, self._first[key][1], thread[first : first + records])
            first += records
        self._columns.clear()
        return built

    def _sorted(self) -> Iterator[tuple[tuple[int, int], _Columns]]:
        return ((key, self._columns[key]) for key in sorted(self._columns))


def _from_columns(columns: _Columns, base_ns: int, before: int, thread: NDArray[Any]) -> AllocatorTimeline:
    found = [*(column.build() for column in columns[:5]), thread]
    if (found[0][1:] < found[0][:-1]).any():
        order = np.argsort(found[0], kind="stable")
        found = [column[order] for column in found]
    time_ns, allocated, reserved, change, address, thread = found
    time_ns += base_ns
    return AllocatorTimeline(
        time_ns=time_ns,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        before_bytes=before,
        change_bytes=change,
        address=address,
        thread=thread,
    )


def _decoded(texts: list[Raw]) -> list[_Args]:
    """Decode the `args` of each, together if all are valid."""
    try:
        decoded = _LIST_DECODER.decode(b"[" + b",".join(texts) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        decoded = []
    # If all are missing, the joined text is an empty list.
    return decoded if len(decoded) == len(texts) else [_decoded_alone(text) for text in texts]


def _decoded_alone(text: Raw) -> _Args:
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return _NO_ARGS


def _counts(values: list[Any]) -> Ints:
    """Return counts as a column; -1 if missing or invalid (the host has no device number)."""
    column = all_integers(values)
    if column is None:
        usable = (value if type(value) is int and 0 <= value < _LARGEST_BYTES else UNKNOWN for value in values)
        column = np.fromiter(usable, np.int64, len(values))
    return np.where((column >= 0) & (column < _LARGEST_BYTES), column, UNKNOWN)


def _changes(values: list[Any]) -> Ints:
    """Return changes in bytes as a column; 0 if missing or invalid."""
    usable = (value if type(value) is int and abs(value) < _LARGEST_BYTES else 0 for value in values)
    return np.fromiter(usable, np.int64, len(values))
