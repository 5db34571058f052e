"""What only a timeline shows: categories and names of threads."""

from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.event_decoding import RawMetadata
from perfkit.trace.events import TimelineDetail
from perfkit.trace.lanes import Id

_MOST_NAMES: Final = 100_000


class ThreadNameCollector:
    """Collects them, batch by batch."""

    def __init__(self) -> None:
        self._names: dict[tuple[Id, Id], str] = {}
        self._category = np.zeros(0, np.int32)
        self._categories: tuple[str, ...] = ()
        self._threads: tuple[tuple[Id, Id], ...] = ()

    def add(self, batch: list[Any]) -> None:
        """Take the names of a batch."""
        for event in batch:
            if event.__class__ is RawMetadata and event.name == "thread_name":
                self._add_name(event)

    def _add_name(self, event: RawMetadata) -> None:
        key, name = (event.pid, event.tid), event.args.name
        if (
            isinstance(name, str)
            and all(isinstance(part, int | str) for part in key)
            and len(self._names) < _MOST_NAMES
        ):
            self._names[key] = name

    def finish(
        self, category: NDArray[Any], categories: Iterable[str | None], threads: Iterable[tuple[Id, Id]]
    ) -> None:
        """Take what is known once all events are."""
        self._category, self._threads = category, tuple(threads)
        self._categories = tuple("" if name is None else name for name in categories)

    def build(self) -> TimelineDetail:
        """Return what was collected."""
        return TimelineDetail(
            category=self._category,
            categories=self._categories,
            threads=self._threads,
            thread_names=self._names,
        )
