"""Collect Python frames (`with_stack`): those that last long enough to explain idle time, in bounded memory."""

import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.event_decoding import RawEvent
from perfkit.trace.events import LONGEST_NS, MODULE, PythonFrames
from perfkit.trace.growable_array import GrowableArray
from perfkit.trace.timestamps import to_nanoseconds

SHORTEST_NS: Final = 10_000
"""Shorter frames are not kept, except modules: their time counts for the functions that called them."""
_MOST_FRAMES: Final = 1 << 19
_LONGEST_NAME: Final = 300
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
"""Part of the names of built-in methods, one name per object."""


class PythonFrameCollector:
    """Collects frames, batch by batch; drops the shorter ones whenever there are too many."""

    def __init__(self, most: int = _MOST_FRAMES) -> None:
        self._most = most
        self._shortest_ns, self._shortest_module_ns = SHORTEST_NS, 0
        self._names: dict[str, int] = {}
        self._clear()

    def _clear(self) -> None:
        self._name, self._thread = GrowableArray(np.int32), GrowableArray(np.int16)
        self._start_ns, self._end_ns = GrowableArray(np.int64), GrowableArray(np.int64)
        self._count = 0

    def long_enough(self, events: list[RawEvent[str]]) -> list[RawEvent[str]]:
        if not events:
            return events
        dur_ns, valid = to_nanoseconds([event.dur for event in events])
        shortest_ns = np.where(_are_modules(events), self._shortest_module_ns, self._shortest_ns)
        kept = valid & (dur_ns >= shortest_ns) & (dur_ns <= LONGEST_NS)
        return [events[place] for place in np.flatnonzero(kept).tolist()]

    def add(self, events: list[RawEvent[str]], thread: NDArray[np.int32]) -> None:
        """Add frames that are long enough, and the index of each one's thread."""
        start_ns, valid = to_nanoseconds([event.ts for event in events])
        dur_ns, _ = to_nanoseconds([event.dur for event in events])
        name = np.fromiter((self._name_index(event.name) for event in events), np.int32, len(events))
        self._extend(name[valid], thread[valid], start_ns[valid], (start_ns + dur_ns)[valid])
        while self._count > self._most:
            self._drop_shorter()

    def _name_index(self, name: str) -> int:
        plain = _ADDRESS.sub("", name[: 2 * _LONGEST_NAME])[:_LONGEST_NAME]
        return self._names.setdefault(plain, len(self._names))

    def _extend(self, name: NDArray[Any], thread: NDArray[Any], start_ns: NDArray[Any], end_ns: NDArray[Any]) -> None:
        columns = (self._name, self._thread, self._start_ns, self._end_ns)
        for column, values in zip(columns, (name, thread, start_ns, end_ns), strict=True):
            column.extend(values)
        self._count += len(name)

    def _drop_shorter(self) -> None:
        name, thread, start_ns, end_ns = self._build()
        is_module = np.array([text.startswith(MODULE) for text in self._names], np.bool_)[name]
        self._shortest_ns *= 2
        if np.count_nonzero(is_module) > self._most // 2:
            self._shortest_module_ns = max(2 * self._shortest_module_ns, SHORTEST_NS)
        kept = end_ns - start_ns >= np.where(is_module, self._shortest_module_ns, self._shortest_ns)
        used, renumbered = np.unique(name[kept], return_inverse=True)
        names = list(self._names)
        self._names = {names[place]: number for number, place in enumerate(used.tolist())}
        self._clear()
        self._extend(renumbered, thread[kept], start_ns[kept], end_ns[kept])

    def _build(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
        return self._name.build(), self._thread.build(), self._start_ns.build(), self._end_ns.build()

    def threads(self) -> NDArray[Any]:
        """Return the index of each frame's thread, as given."""
        return self._thread.build()

    def build(self, base_ns: int, thread: NDArray[Any]) -> PythonFrames:
        """Return the frames, with their threads' final indices."""
        name, _, start_ns, end_ns = self._build()
        return PythonFrames(
            name=name,
            start_ns=start_ns + base_ns,
            end_ns=end_ns + base_ns,
            thread=thread,
            names=tuple(self._names),
        )


def _are_modules(events: list[RawEvent[str]]) -> NDArray[np.bool_]:
    # Comparing texts takes half as long as `startswith`, and there may be millions.
    begin, end = MODULE, MODULE[:-1] + "!"
    return np.array([begin <= event.name < end for event in events], np.bool_)
