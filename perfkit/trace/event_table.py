"""From decoded events to columns, batch by batch: names become numbers, texts become nanoseconds.

Within a batch every step is a pass over a whole column; the records are forgotten with their batch.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from itertools import compress
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.allocator_events import AllocatorEventCollector
from perfkit.trace.categories import communication_operators, is_legacy_annotation, kind_of
from perfkit.trace.collective_args import CollectiveArgsBuilder
from perfkit.trace.event_decoding import NotAnEvent, RawArgs, RawEvent, RawInstant
from perfkit.trace.events import AllocatorTimeline, EventKind, Events, TimelineDetail
from perfkit.trace.growable_array import GrowableArray
from perfkit.trace.intervals import Ints
from perfkit.trace.lanes import ANNOUNCEMENTS, Id, Lanes
from perfkit.trace.scalars import integer
from perfkit.trace.thread_names import ThreadNameCollector
from perfkit.trace.timestamps import to_nanoseconds

_KEPT: Final = np.array([kind in (0, 1, 2, 3, 4) for kind in EventKind])
_LONGEST_NS: Final = 2**50
"""Durations beyond it (13 days) are damage; so many of the longest add up within int64 as matter."""
_DTYPES: Final[dict[str, type[np.generic]]] = {
    "kind": np.uint8,
    "name": np.int32,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "thread": np.int32,
    "correlation": np.int64,
    "category": np.int32,
}

KeyT = TypeVar("KeyT", bound=Hashable)


class _Interned(dict[KeyT, int], Generic[KeyT]):
    """Numbers values in the order of their first appearance; calls `learn` with each new one."""

    def __init__(self, learn: Callable[[KeyT], None] = lambda _: None) -> None:
        super().__init__()
        self._learn = learn

    def __missing__(self, key: KeyT) -> int:
        self._learn(key)
        self[key] = number = len(self)
        return number

    def column(self, values: Iterable[KeyT], count: int) -> NDArray[np.int32]:
        return np.fromiter(map(self.__getitem__, values), np.int32, count)


class _Flags(bytearray):
    """One answer a number, computed when the number is given."""

    def of(self, numbers: NDArray[np.int32]) -> NDArray[np.bool_]:
        # Not copied: a program may put a number into each of a million names.
        return np.frombuffer(self, np.bool_)[numbers]


class EventTableBuilder:
    """Collects the events of one trace."""

    def __init__(self, *, detailed: bool = False) -> None:
        self._detail = ThreadNameCollector() if detailed else None
        self._wanted = np.ones_like(_KEPT) if detailed else _KEPT
        self._old_annotation, self._communicates, self._dispatches = _Flags(), _Flags(), _Flags()
        self._category_kind: list[EventKind] = []
        self._categories: _Interned[str | None] = _Interned(self._learn_category)
        self._names: _Interned[str] = _Interned(self._learn_name)
        self._threads: _Interned[tuple[int | str, int | str]] = _Interned()
        self._columns = {
            name: GrowableArray(dtype) for name, dtype in _DTYPES.items() if detailed or name != "category"
        }
        self._rows = 0
        self._sayings = CollectiveArgsBuilder()
        self._by_category: Counter[int] = Counter()
        self._became_annotations = 0
        self._others = 0
        self._items = self._events = False
        self.repaired: Counter[str] = Counter()
        """Damage that was mended or left out, by what it was, with the number of events."""
        self._memory = AllocatorEventCollector(self.repaired)

    def __len__(self) -> int:
        return self._rows

    @property
    def is_foreign(self) -> bool:
        """Whether something was added, and none of it is an event: it is the list of something else."""
        return self._items and not self._events

    def _learn_category(self, category: str | None) -> None:
        self._category_kind.append(EventKind.UNKNOWN if category is None else kind_of(category))

    def _learn_name(self, name: str) -> None:
        self._old_annotation.append(is_legacy_annotation(name))
        self._communicates.append(communication_operators().match(name) is not None)
        self._dispatches.append(name.startswith(("c10d::", "_c10d_functional::")))

    def add(self, batch: list[Any]) -> None:
        """Take the events of a batch: complete ones are of type `RawEvent`; of others only the allocator's are kept."""
        complete = [event for event in batch if event.__class__ is RawEvent]
        kinds = set(map(type, batch))
        self._items, self._events = True, self._events or bool(kinds - {NotAnEvent})
        if RawInstant in kinds:
            self._memory.add([event for event in batch if event.__class__ is RawInstant])
        self._others += len(batch) - len(complete)
        if self._detail:
            self._detail.add(batch)
        category = self._categories.column([event.cat for event in complete], len(complete))
        for number, count in enumerate(np.bincount(category).tolist()):
            self._by_category[number] += count
        kind = np.array(self._category_kind, np.uint8)[category]
        kept = self._wanted[kind]
        events: list[RawEvent] = complete if kept.all() else list(compress(complete, kept.tolist()))
        if events:
            self._keep(events, kind[kept], category[kept])

    def _keep(self, events: list[RawEvent], kind: NDArray[np.uint8], category: NDArray[np.int32]) -> None:
        start_ns, end_ns, placed = self._spans(events)
        name = self._names.column([event.name for event in events], len(events))
        kind = self._with_old_annotations(kind, category, name)
        if not placed.all():
            events = list(compress(events, placed.tolist()))
            kind, name, start_ns, end_ns = kind[placed], name[placed], start_ns[placed], end_ns[placed]
            category = category[placed]
        thread = self._threads.column(zip([e.pid for e in events], [e.tid for e in events], strict=True), len(events))
        args = [event.args for event in events]
        columns: dict[str, NDArray[Any]] = {"kind": kind, "name": name, "thread": thread}
        columns |= {"start_ns": start_ns, "end_ns": end_ns}
        columns["correlation"] = self._correlations(args)
        if self._detail:
            columns["category"] = category
        self._describe(args, name)
        for key, values in columns.items():
            self._columns[key].extend(values)
        self._rows += len(events)

    def _spans(self, events: list[RawEvent]) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        start_ns, placed = to_nanoseconds([event.ts for event in events])
        dur_ns, lasting = to_nanoseconds([event.dur for event in events])
        negative = lasting & (dur_ns < 0)
        endless = lasting & (dur_ns > _LONGEST_NS)
        self._repair("events without a usable start, left out", ~placed)
        self._repair("events without a usable duration, taken as empty", placed & ~lasting)
        self._repair("events of negative duration, taken as empty", placed & negative)
        self._repair("events longer than 13 days, taken as empty", placed & endless)
        return start_ns, start_ns + np.where(negative | endless, 0, dur_ns), placed

    def _repair(self, what: str, which: NDArray[np.bool_]) -> None:
        self.repaired[what] += int(np.count_nonzero(which))

    def _with_old_annotations(
        self, kind: NDArray[np.uint8], category: NDArray[np.int32], name: NDArray[np.int32]
    ) -> NDArray[np.uint8]:
        """Tell the annotations among the events of category `Operator`."""
        old = (kind == EventKind.OPERATOR) & (category != self._categories.get("cpu_op", -1))
        if not old.any():
            return kind
        old &= self._old_annotation.of(name)
        self._became_annotations += int(np.count_nonzero(old))
        return np.where(old, np.uint8(EventKind.ANNOTATION), kind)

    def _correlations(self, args: list[RawArgs]) -> Ints:
        values = [a.correlation for a in args]
        column = None
        if set(map(type, values)) == {int}:
            try:
                column = np.fromiter(values, np.int64, len(values))
            except OverflowError:
                column = None
        if column is not None and not (column < -1).any():
            return column
        mangled = sum(value not in (None, -1) and integer(value, -1) == -1 for value in values)
        self.repaired["events with a correlation that is no number, taken as having none"] += mangled
        return np.array([integer(value, -1) for value in values], np.int64)

    def _describe(self, args: list[RawArgs], name: NDArray[np.int32]) -> None:
        telling = self._communicates.of(name)
        telling[[k for k, a in enumerate(args) if a.collective is not None]] = True
        places = np.flatnonzero(telling)
        dispatches = self._dispatches.of(name[places]).tolist()
        self._sayings.add(self._rows + places, [args[k] for k in places.tolist()], dispatches)

    # ---- what has been collected -----------------------------------------------------------------------------------

    def events(self, base_ns: int, lanes: Lanes) -> Events:
        """Return the columns, with lanes taken back to their threads; nothing can be added afterwards."""
        columns = {key: column.build() for key, column in self._columns.items()}
        category = columns.pop("category", columns["kind"])
        columns["thread"], owners = self._without_lanes(columns["thread"], lanes)
        if self._detail:
            self._detail.finish(category, self._categories, owners)
        columns["start_ns"] += base_ns
        columns["end_ns"] += base_ns
        return Events(**columns, names=tuple(self._names), collective_args=self._sayings.build())

    def _without_lanes(self, thread: NDArray[np.int32], lanes: Lanes) -> tuple[NDArray[np.int32], list[tuple[Id, Id]]]:
        """Number threads as they would be numbered if no slice had been moved; also return them by number."""
        if not any(lane in self._threads for lane in lanes):
            return thread, list(self._threads)
        owners: _Interned[tuple[Id, Id]] = _Interned()
        owner = owners.column([lanes.get(key, key) for key in self._threads], len(self._threads))
        seen, first, number = np.unique(owner[thread], return_index=True, return_inverse=True)
        by_first = np.argsort(first)
        keys = list(owners)
        return np.asarray(np.argsort(by_first)[number], np.int32), [keys[k] for k in seen[by_first].tolist()]

    def memory(self, base_ns: int) -> dict[tuple[int, int], AllocatorTimeline]:
        """Return what the allocators said, by type and number of their device."""
        return self._memory.build(base_ns)

    def detail(self) -> TimelineDetail | None:
        """Return what a timeline shows beyond the events; after `events`."""
        return self._detail.build() if self._detail else None

    def counts(self, lanes: Lanes) -> dict[EventKind, int]:
        """Return the number of events by kind, kept or not; those that announce lanes are not of the trace."""
        counts: Counter[EventKind] = Counter({EventKind.OTHER: max(0, self._others - ANNOUNCEMENTS * len(lanes))})
        for number, count in self._by_category.items():
            counts[self._category_kind[number]] += count
        counts[EventKind.ANNOTATION] += self._became_annotations
        counts[EventKind.OPERATOR] -= self._became_annotations
        return dict(+counts)

    def unknown(self) -> dict[str, int]:
        """Return the categories that no row knows, with the number of complete events of each."""
        return {
            str(category): count
            for category, number in self._categories.items()
            if self._category_kind[number] is EventKind.UNKNOWN and (count := self._by_category[number])
        }
