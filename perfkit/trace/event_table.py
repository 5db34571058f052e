"""Collect decoded events into columns, batch by batch: names become indices, texts become nanoseconds.

Every step is a pass over a whole column of the batch; the records are released with their batch.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from itertools import compress, islice
from itertools import count as counting
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.allocator_events import ALLOCATOR_RECORD, AllocatorEventCollector
from perfkit.trace.arguments import CollectiveArgsBuilder, DeviceArgsBuilder, OperatorArgsBuilder
from perfkit.trace.categories import LEGACY_ANNOTATION, communication_operators, kind_of
from perfkit.trace.event_decoding import (
    MISSING,
    NotAnEvent,
    RawArgs,
    RawEvent,
    RawInstant,
    RawMetadata,
    all_integers,
    parse_int,
)
from perfkit.trace.events import (
    AFTER_END,
    BAD_CORRELATION,
    LONGEST_NS,
    NEGATIVE_DURATION,
    NO_DURATION,
    NO_START,
    TOO_LONG,
    AllocatorTimeline,
    EventKind,
    Events,
    PythonFrames,
    Repair,
    TimelineDetail,
)
from perfkit.trace.growable_array import GrowableArray
from perfkit.trace.intervals import Ints
from perfkit.trace.lanes import ANNOUNCEMENTS, Id, Lanes
from perfkit.trace.name_matching import NameShapes
from perfkit.trace.python_frames import PythonFrameCollector
from perfkit.trace.symbols import MANGLED
from perfkit.trace.timestamps import to_nanoseconds

_IS_KEPT: Final = np.array([kind in (0, 1, 2, 3, 4, 8, 9) for kind in EventKind])
_MOST_THREAD_NAMES: Final = 100_000
_DTYPES: Final[dict[str, type[np.generic]]] = {  # wider if need be
    "kind": np.uint8,
    "name": np.int32,
    "start_ns": np.int64,
    "end_ns": np.int64,
    "thread": np.int16,
    "correlation": np.int32,
    "category": np.int32,
}

_RECORDING_ENDS: Final = "Record Window End"
"""An instant of kineto's: it leaves out what ends later (`CuptiActivityProfiler::outOfRange`), as do 25 real traces."""
_DISPATCHES: Final = re.compile(r"c10d::|_c10d_functional::")
"""Operators that issue collectives."""

KeyT = TypeVar("KeyT", bound=Hashable)


class _Interned(defaultdict[KeyT, int], Generic[KeyT]):
    """Index values in the order of their first appearance."""

    def __init__(self) -> None:
        super().__init__(counting().__next__)  # a separate method would take as long as all else per new name

    def column(self, values: Iterable[KeyT], size: int) -> NDArray[np.int32]:
        return np.fromiter(map(self.__getitem__, values), np.int32, size)

    def since(self, known: int) -> list[KeyT]:
        """Return the values that have come after the first `known` ones."""
        return list(islice(reversed(self), len(self) - known))[::-1]


class _Flags(bytearray):
    """One flag per index."""

    def at(self, indices: NDArray[np.int32]) -> NDArray[np.bool_]:
        # Not copied: a program may put a counter into its names, and have a million of them.
        return np.frombuffer(self, np.bool_)[indices]


class EventTableBuilder:
    """Collects the events of one trace."""

    def __init__(self, *, detailed: bool = False) -> None:
        self._detailed = detailed
        self._thread_names: dict[tuple[Id, Id], str] = {}
        self._detail: TimelineDetail | None = None
        self._is_wanted = np.ones_like(_IS_KEPT) if detailed else _IS_KEPT
        self._is_legacy_annotation, self._communicates, self._is_dispatch = _Flags(), _Flags(), _Flags()
        self._kind_of_category: list[EventKind] = []
        self._categories: _Interned[str | None] = _Interned()
        self._shapes: list[NameShapes] = []
        self._names: _Interned[str] = _Interned()
        self._threads: _Interned[tuple[int | str, int | str]] = _Interned()
        self._columns = {
            name: GrowableArray(dtype) for name, dtype in _DTYPES.items() if detailed or name != "category"
        }
        self._rows = 0
        self._collective_args = CollectiveArgsBuilder()
        self._operator_args, self._device_args = OperatorArgsBuilder(), DeviceArgsBuilder()
        self._count_by_category: Counter[int] = Counter()
        self._legacy_annotations = 0
        self._other_events = 0
        self._has_items = self._has_events = self._has_allocator_records = False
        self.repaired: Counter[Repair] = Counter()
        """Number of invalid events by what was done with them."""
        self._recorded_until_ns: int | None = None
        self._allocator = AllocatorEventCollector(self.repaired)
        self._frames = PythonFrameCollector()
        self._frame_threads = self._allocator_threads = np.zeros(0, np.int16)

    def __len__(self) -> int:
        return self._rows

    @property
    def is_foreign(self) -> bool:
        """Whether items were added, none of which is an event: it is a list of something else."""
        return self._has_items and not self._has_events

    def _classify_names(self) -> None:
        if len(self._names) == len(self._communicates):
            return
        shapes = NameShapes(self._names.since(len(self._communicates)))
        self._shapes.append(shapes)
        self._is_legacy_annotation.extend(shapes.starting_with(LEGACY_ANNOTATION).tobytes())
        self._communicates.extend(shapes.starting_with(communication_operators()).tobytes())
        self._is_dispatch.extend(shapes.starting_with(_DISPATCHES).tobytes())

    def add(self, batch: list[Any]) -> None:
        """Add the events of a batch; of those that are not complete, only the allocator's are kept."""
        complete = [event for event in batch if event.__class__ is RawEvent]
        kinds = set(map(type, batch))
        self._has_items, self._has_events = True, self._has_events or bool(kinds - {NotAnEvent})
        if RawInstant in kinds:
            instants = [event for event in batch if event.__class__ is RawInstant]
            self._keep_allocator_records([event for event in instants if event.name == ALLOCATOR_RECORD])
            self._note_end([event for event in instants if event.name == _RECORDING_ENDS])
        self._other_events += len(batch) - len(complete)
        if self._detailed:
            self._keep_thread_names(batch)
        category = self._categories.column([event.cat for event in complete], len(complete))
        new = self._categories.since(len(self._kind_of_category))
        self._kind_of_category += [EventKind.UNKNOWN if one is None else kind_of(one) for one in new]
        for number, count in enumerate(np.bincount(category).tolist()):
            self._count_by_category[number] += count
        kind = np.array(self._kind_of_category, np.uint8)[category]
        kept = self._is_wanted[kind]
        events: list[RawEvent[str]] = complete if kept.all() else list(compress(complete, kept.tolist()))
        if events:
            self._keep(events, kind[kept], category[kept])
        if EventKind.PYTHON in kind:
            frames = self._frames.long_enough(list(compress(complete, (kind == EventKind.PYTHON).tolist())))
            self._frames.add(frames, self._threads_of(frames))

    def _keep_thread_names(self, batch: list[Any]) -> None:
        for event in batch:
            if event.__class__ is RawMetadata and event.name == "thread_name":
                key, name = (event.pid, event.tid), event.args.name
                is_valid = isinstance(name, str) and all(isinstance(part, int | str) for part in key)
                if is_valid and len(self._thread_names) < _MOST_THREAD_NAMES:
                    self._thread_names[key] = name

    def _note_end(self, marks: list[RawInstant]) -> None:
        times_ns, valid = to_nanoseconds([mark.ts for mark in marks])
        ends_ns = [*times_ns[valid].tolist(), *([] if self._recorded_until_ns is None else [self._recorded_until_ns])]
        self._recorded_until_ns = max(ends_ns, default=None)

    def _keep_allocator_records(self, records: list[RawInstant]) -> None:
        if records:
            self._has_allocator_records = True
            self._allocator.add(records, self._threads.column(map(_thread_of, records), len(records)))

    def _threads_of(self, events: list[RawEvent[str]], on_device: Iterable[int] = ()) -> NDArray[np.int32]:
        """Return the threads of events; of those on a device, its streams: `pid` is its number unless `args` tell."""
        pids = [e.pid for e in events]
        for k in on_device:
            device = events[k].args.device
            if device.__class__ is int and device >= 0:
                pids[k] = device
        return self._threads.column(zip(pids, [e.tid for e in events], strict=True), len(events))

    def _keep(self, events: list[RawEvent[str]], kind: NDArray[np.uint8], category: NDArray[np.int32]) -> None:
        start_ns, end_ns, has_start = self._spans(events)
        name = self._names.column([event.name for event in events], len(events))
        self._classify_names()
        kind = self._with_legacy_annotations(kind, category, name)
        if not has_start.all():
            events = list(compress(events, has_start.tolist()))
            kind, name, start_ns, end_ns = kind[has_start], name[has_start], start_ns[has_start], end_ns[has_start]
            category = category[has_start]
        thread = self._threads_of(events, np.flatnonzero(kind <= EventKind.COPY).tolist())
        args = [event.args for event in events]
        columns: dict[str, NDArray[Any]] = {"kind": kind, "name": name, "thread": thread}
        columns |= {"start_ns": start_ns, "end_ns": end_ns}
        columns["correlation"] = self._correlations(args, kind)
        if self._detailed:
            columns["category"] = category
        self._add_args(args, kind, name)
        for key, values in columns.items():
            self._columns[key].extend(values)
        self._rows += len(events)

    def _spans(self, events: list[RawEvent[str]]) -> tuple[Ints, Ints, NDArray[np.bool_]]:
        # Together: half as many passes over short columns.
        times_ns, valid = to_nanoseconds([event.ts for event in events] + [event.dur for event in events])
        (start_ns, dur_ns), (has_start, has_duration) = times_ns.reshape(2, -1), valid.reshape(2, -1)
        negative, too_long = dur_ns < 0, dur_ns > LONGEST_NS
        unusable = negative | too_long
        if not valid.all() or unusable.any():
            self.repaired[NO_START] += int(np.count_nonzero(~has_start))
            for repair, mask in ((NO_DURATION, ~has_duration), (NEGATIVE_DURATION, negative), (TOO_LONG, too_long)):
                self.repaired[repair] += int(np.count_nonzero(has_start & mask))
            dur_ns = np.where(unusable, 0, dur_ns)
        return start_ns, start_ns + dur_ns, has_start

    def _with_legacy_annotations(
        self, kind: NDArray[np.uint8], category: NDArray[np.int32], name: NDArray[np.int32]
    ) -> NDArray[np.uint8]:
        """Reclassify the annotations among the events of category `Operator`."""
        legacy = (kind == EventKind.OPERATOR) & (category != self._categories.get("cpu_op", -1))
        if not legacy.any():
            return kind
        legacy &= self._is_legacy_annotation.at(name)
        self._legacy_annotations += int(np.count_nonzero(legacy))
        return np.where(legacy, np.uint8(EventKind.ANNOTATION), kind)

    def _correlations(self, args: list[RawArgs], kind: NDArray[np.uint8]) -> Ints:
        """Return the correlation of each event, of operators and annotations their `External id`; -1 without one."""
        of_host = ((kind == EventKind.OPERATOR) | (kind == EventKind.ANNOTATION)).tolist()
        values = [a.external_id if host else a.correlation for a, host in zip(args, of_host, strict=True)]
        column = all_integers(values)
        if column is None or (column < -1).any():
            others = [value for value, host in zip(values, of_host, strict=True) if not host]
            invalid = sum(value not in (None, -1) and parse_int(value, -1) == -1 for value in others)
            self.repaired[BAD_CORRELATION] += invalid
            column = np.array([parse_int(value, -1) for value in values], np.int64)
        return column

    def _add_args(self, args: list[RawArgs], kind: NDArray[np.uint8], name: NDArray[np.int32]) -> None:
        # One pass over all events: few have any of these, except with shapes.
        missing = MISSING
        some = [
            k
            for k, a in enumerate(args)
            if a.sequence_number != -1 or a.input_dims is not missing or a.collective is not None
        ]
        places = np.array(some, np.int64)
        self._add_collective_args(args, name, [k for k in some if args[k].collective is not None])
        self._add_args_of(places[kind[places] == EventKind.OPERATOR], args, self._operator_args.add)
        self._add_args_of(np.flatnonzero(kind == EventKind.KERNEL), args, self._device_args.add_kernels)

    def _add_collective_args(self, args: list[RawArgs], name: NDArray[np.int32], named: list[int]) -> None:
        """Add the metadata of collectives, of events that communicate by name and the `named` ones."""
        has_args = self._communicates.at(name)
        has_args[named] = True
        rows = np.flatnonzero(has_args)
        dispatches = self._is_dispatch.at(name[rows]).tolist()
        self._collective_args.add(self._rows + rows, [args[k] for k in rows.tolist()], dispatches)

    def _add_args_of(self, places: Ints, args: list[RawArgs], add: Callable[[Ints, list[RawArgs]], None]) -> None:
        if len(places):
            add(self._rows + places, [args[k] for k in places.tolist()])

    # ---- the finished table ----------------------------------------------------------------------------------------

    def events(self, base_ns: int, lanes: Lanes) -> Events:
        """Return the columns, with lanes merged back into their threads; nothing can be added afterwards."""
        columns = {key: column.build() for key, column in self._columns.items()}
        category = columns.pop("category", columns["kind"])
        rows = len(columns["thread"])
        others = self._frames.threads(), self._allocator.threads()
        thread, owners = self._merge_lanes(np.concatenate((columns["thread"], *others)), lanes)
        ends = rows, rows + len(others[0])
        columns["thread"], self._frame_threads, self._allocator_threads = np.split(thread, ends)
        if self._detailed:
            categories = tuple(name or "" for name in self._categories)
            self._detail = TimelineDetail(category=category, categories=categories, thread_names=self._thread_names)
        if self._recorded_until_ns is not None:
            self._cut_at_end(columns["kind"], columns["start_ns"], columns["end_ns"], self._recorded_until_ns)
        columns["start_ns"] += base_ns
        columns["end_ns"] += base_ns
        names = tuple(self._names)
        if any(shape.startswith(MANGLED) for part in self._shapes for shape in part.distinct):
            from perfkit.trace.symbols.demangle import readable_names

            names = readable_names(names)
        return Events(
            **columns,
            names=names,
            threads=tuple(owners),
            known_shapes=[NameShapes(names, self._shapes)] if names == tuple(self._names) else [],
            collective_args=self._collective_args.build(),
            operator_args=self._operator_args.build(),
            device_args=self._device_args.build(),
        )

    def _cut_at_end(self, kind: NDArray[np.uint8], start_ns: Ints, end_ns: Ints, until_ns: int) -> None:
        """Cut events of the host that last longer than the recording; a device has a clock of its own."""
        late = np.flatnonzero((end_ns > until_ns) & (start_ns < until_ns))
        late = late[~np.isin(kind[late], (EventKind.KERNEL, EventKind.COPY, EventKind.DEVICE_ANNOTATION))]
        end_ns[late] = until_ns
        self.repaired[AFTER_END] += len(late)

    def recorded_until_ns(self, base_ns: int) -> int | None:
        """Return when the profiler stopped to record; None if no event tells."""
        return None if self._recorded_until_ns is None else self._recorded_until_ns + base_ns

    def _merge_lanes(self, thread: NDArray[Any], lanes: Lanes) -> tuple[NDArray[Any], list[tuple[Id, Id]]]:
        """Return the threads' indices as if no slice had been moved to a lane, and the threads by index."""
        # Where the allocator's records begin to name threads depends on the batches: number by first event instead.
        if not self._has_allocator_records and not any(lane in self._threads for lane in lanes):
            return thread, list(self._threads)
        owners: _Interned[tuple[Id, Id]] = _Interned()
        owner = owners.column([lanes.get(key, key) for key in self._threads], len(self._threads))
        seen, first, number = np.unique(owner[thread], return_index=True, return_inverse=True)
        by_first = np.argsort(first)
        keys = list(owners)
        return np.asarray(np.argsort(by_first)[number], np.int32), [keys[k] for k in seen[by_first].tolist()]

    def frames(self, base_ns: int) -> PythonFrames:
        """Return the Python frames; to be called after `events`."""
        return self._frames.build(base_ns, self._frame_threads)

    def memory(self, base_ns: int) -> dict[tuple[int, int], AllocatorTimeline]:
        """Return the allocators' timelines, by type and number of their device; to be called after `events`."""
        return self._allocator.build(base_ns, self._allocator_threads)

    def detail(self) -> TimelineDetail | None:
        """Return what a timeline shows beyond the events; to be called after `events`."""
        return self._detail

    def counts(self, lanes: Lanes) -> dict[EventKind, int]:
        """Return the number of events by kind, kept or not; metadata events of lanes are not counted."""
        counts: Counter[EventKind] = Counter({EventKind.OTHER: max(0, self._other_events - ANNOUNCEMENTS * len(lanes))})
        for number, count in self._count_by_category.items():
            counts[self._kind_of_category[number]] += count
        counts[EventKind.ANNOTATION] += self._legacy_annotations
        counts[EventKind.OPERATOR] -= self._legacy_annotations
        return dict(+counts)

    def unknown(self) -> dict[str, int]:
        """Return the unknown categories, with the number of complete events of each."""
        return {
            str(category): count
            for category, number in self._categories.items()
            if self._kind_of_category[number] is EventKind.UNKNOWN and (count := self._count_by_category[number])
        }


def _thread_of(record: RawInstant) -> tuple[Id, Id]:
    """Return the thread of an instant, whose ids are not validated."""
    pid, tid = (value if type(value) in (int, str) else str(value) for value in (record.pid, record.tid))
    return pid, tid
