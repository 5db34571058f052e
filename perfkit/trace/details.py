"""What only a timeline shows: categories, names of threads, the allocator's counts."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.events import Detail
from perfkit.trace.formats import RawMark, RawName
from perfkit.trace.intervals import Ints
from perfkit.trace.lanes import Id
from perfkit.trace.times import to_nanoseconds

_LARGEST_BYTES: Final = 2**53
_MOST_DEVICES: Final = 64
_MOST_NAMES: Final = 100_000


class Details:
    """Collects them, batch by batch."""

    def __init__(self) -> None:
        self._names: dict[tuple[Id, Id], str] = {}
        self._memory: dict[tuple[int, int], list[tuple[Ints, Ints]]] = {}
        self._category = np.zeros(0, np.int32)
        self._categories: tuple[str, ...] = ()
        self._threads: tuple[tuple[Id, Id], ...] = ()

    def add(self, batch: list[Any]) -> None:
        """Take the marks and names of a batch."""
        for event in batch:
            if event.__class__ is RawName and event.name == "thread_name":
                self._add_name(event)
        marks = [event for event in batch if event.__class__ is RawMark and event.name == "[memory]"]
        if marks:
            self._add_memory(marks)

    def _add_name(self, event: RawName) -> None:
        key, name = (event.pid, event.tid), event.args.name
        if (
            isinstance(name, str)
            and all(isinstance(part, int | str) for part in key)
            and len(self._names) < _MOST_NAMES
        ):
            self._names[key] = name

    def _add_memory(self, marks: list[RawMark]) -> None:
        time_ns, placed = to_nanoseconds([mark.ts for mark in marks])
        rows = [(_natural(m.args.device_type), _natural(m.args.device), _natural(m.args.allocated)) for m in marks]
        kind, device, allocated = np.array(rows, np.int64).T
        known = placed & (kind >= 0) & (allocated >= 0)
        for key in set(zip(kind[known].tolist(), device[known].tolist(), strict=True)):
            chosen = known & (kind == key[0]) & (device == key[1])
            if key in self._memory or len(self._memory) < _MOST_DEVICES:
                self._memory.setdefault(key, []).append((time_ns[chosen], allocated[chosen]))

    def finish(
        self, category: NDArray[Any], categories: Iterable[str | None], threads: Iterable[tuple[Id, Id]]
    ) -> None:
        """Take what is known once all events are."""
        self._category, self._threads = category, tuple(threads)
        self._categories = tuple("" if name is None else name for name in categories)

    def made(self, base_ns: int) -> Detail:
        """Return what was collected, in absolute time."""
        joined = {key: tuple(map(np.concatenate, zip(*parts, strict=True))) for key, parts in self._memory.items()}
        return Detail(
            category=self._category,
            categories=self._categories,
            threads=self._threads,
            thread_names=self._names,
            memory={key: (time_ns + base_ns, allocated) for key, (time_ns, allocated) in sorted(joined.items())},
        )


def _natural(value: Any) -> int:
    """Return a count; -1 where it is none, as a device of the CPU has no number."""
    return value if isinstance(value, int) and 0 <= value < _LARGEST_BYTES else -1
