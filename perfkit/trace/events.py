"""`Events`: the currency between reading and analysis. Equal-length columns, interned names, integer nanoseconds."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from perfkit.schema.trace_header import PerfkitHeader
from perfkit.trace.intervals import Ints
from perfkit.trace.lanes import Id


class EventKind(IntEnum):
    """What an event is, by the trace's own category (metrics.md section 2)."""

    KERNEL = 0
    COPY = 1
    """`gpu_memcpy` and `gpu_memset`."""
    LAUNCH = 2
    OPERATOR = 3
    ANNOTATION = 4
    PYTHON = 5
    """Counted, not kept."""
    OTHER = 6
    """Known and of no use to the analysis: counted, not kept."""
    UNKNOWN = 7
    """A complete event of a category that no row knows: counted, not kept, and a finding."""


class CollectiveArgs(Struct, frozen=True, kw_only=True):
    """What an event says of the collective it belongs to; None where it does not say."""

    operator: str | None = None
    in_elements: int | None = None
    out_elements: int | None = None
    dtype: str | None = None
    group: str | None = None
    group_size: int | None = None
    members: str | None = None
    """The group's ranks as the trace writes them, abbreviated where they are many."""
    input_dims: Any = None
    """`Input Dims`: nested lists of sizes, as recorded with shapes."""
    input_type: Any = None
    """`Input type`: a list of types, likewise."""
    is_dispatch: bool = False
    """Whether the event is a `c10d::*` operator, which lists all its arguments, outputs too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveArgsColumns:
    """What events with metadata of a collective, and communication operators, say of it; columns of shape (s,)."""

    row: Ints
    """In `Events`, ascending."""
    number: NDArray[np.int32]
    """Index into `args`."""
    sequence: Ints
    """The collective's number in its process group; -1 where the event does not say."""
    args: tuple[CollectiveArgs, ...]
    """What is said, each once."""

    def args_index(self, rows: Ints) -> Ints:
        """Return for each row the index into `args` of what it says; -1 where it says nothing, as no row (-1) does."""
        return self._at(rows, self.number)

    def sequence_of(self, rows: Ints) -> Ints:
        """Return for each row the collective's number in its process group; -1 where it does not say."""
        return self._at(rows, self.sequence)

    def _at(self, rows: Ints, column: NDArray[Any]) -> Ints:
        if not len(self.row):
            return np.full(len(rows), -1, np.int64)
        place = np.minimum(np.searchsorted(self.row, rows), len(self.row) - 1)
        return np.where(self.row[place] == rows, column[place], -1).astype(np.int64, copy=False)

    def rows_where(self, what: Callable[[CollectiveArgs], bool]) -> Ints:
        """Return the rows that say what `what` is true of."""
        return self.row[np.array([what(args) for args in self.args], np.bool_)[self.number]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Complete events of one trace, in file order; every column has shape (n,)."""

    kind: NDArray[np.uint8]
    name: NDArray[np.int32]
    """Index into `names`."""
    start_ns: Ints
    end_ns: Ints
    thread: NDArray[np.int32]
    """Interned (pid, tid)."""
    correlation: Ints
    """`args.correlation`; -1 where there is none."""
    names: tuple[str, ...]
    collective_args: CollectiveArgsColumns

    def rows(self, *kinds: EventKind) -> Ints:
        """Return the rows of the given kinds, in file order."""
        return np.flatnonzero(np.isin(self.kind, kinds))


class Header(Struct, frozen=True, kw_only=True):
    """What a trace says of itself; None where it does not say."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    host: str | None = None
    base_ns: int = 0
    device_bytes: dict[int, int] = {}
    """Memory of each accelerator, by its number."""
    perfkit: PerfkitHeader | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineDetail:
    """What a timeline shows beyond what the analysis uses."""

    category: NDArray[np.int32]
    """Of each event, shape (n,): index into `categories`."""
    categories: tuple[str, ...]
    threads: tuple[tuple[Id, Id], ...]
    """(pid, tid) by number in `Events.thread`."""
    thread_names: dict[tuple[Id, Id], str]


HOST: Final = 0
"""torch's number of the type of device that is the host."""


def device_name(kind: int, number: int) -> str:
    """Return what the device of a type, with a number, is called."""
    return "CPU" if kind == HOST else f"device {max(number, 0)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorTimeline:
    """What the allocator of one device held after each allocation and release, in order of time; columns of shape (m,).

    Only what torch's own allocators know of; that of the CPU counts from when memory was first recorded.
    """

    time_ns: Ints
    allocated_bytes: Ints
    reserved_bytes: Ints
    """What it held of the device, whether given out or not; -1 where it does not say, 0 on the CPU."""
    before_bytes: int
    """Allocated before the first; -1 where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """One trace file, read."""

    header: Header
    events: Events
    counts: dict[EventKind, int]
    """Events in the file, by kind, kept or not."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Categories that no row knows, with the number of complete events of each."""
    repaired: dict[str, int] = field(default_factory=dict)
    """Damage that was mended or left out, by what it was, with the number of events."""
    damage: tuple[str, ...] = ()
    """Where events are missing, as sentences: where the file broke, or had its events twice."""
    header_damage: tuple[str, ...] = ()
    """What is wrong with the header alone, as sentences; no event is missing for it."""
    memory: dict[tuple[int, int], AllocatorTimeline] = field(default_factory=dict)
    """By type and number of a device; empty where it was not recorded (`profile_memory`)."""
    detail: TimelineDetail | None = None
    """Only where it was asked for; then `events` holds the complete events of all kinds."""
