"""`Events`, the data that analysis gets from reading: equal-length columns, interned names, integer nanoseconds."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from perfkit.records.trace_header import PerfkitHeader
from perfkit.trace.intervals import Ints
from perfkit.trace.lanes import Id
from perfkit.trace.module_names import ModuleNames
from perfkit.trace.name_matching import NameShapes


class Repair(NamedTuple):
    """What was done with invalid events of one kind."""

    noun: str
    what: str
    skips_events: bool = False
    """Whether the events are missing in the analysis."""


NO_START: Final = Repair("event", "without a usable start, skipped", skips_events=True)
NO_DURATION: Final = Repair("event", "without a usable duration, set to 0")
NEGATIVE_DURATION: Final = Repair("event", "of negative duration, set to 0")
TOO_LONG: Final = Repair("event", "longer than 13 days, set to 0")
AFTER_END: Final = Repair("event", "lasting longer than the recording, cut to its end")
BAD_CORRELATION: Final = Repair("event", "with a correlation that is not a number, ignored")


class EventKind(IntEnum):
    """The kind of an event, by its category in the trace (metrics.md section 2)."""

    KERNEL = 0
    COPY = 1
    """`gpu_memcpy` and `gpu_memset`."""
    LAUNCH = 2
    OPERATOR = 3
    ANNOTATION = 4
    PYTHON = 5
    """Counted; those that last long enough are kept in `RankTrace.frames`."""
    OTHER = 6
    """Known, but not used by the analysis: counted, not kept."""
    UNKNOWN = 7
    """A complete event of an unknown category: counted, not kept, and reported as a finding."""
    TOOL = 8
    """What the device's profiling library or driver did on the host, such as loading code or asking for buffers."""
    DEVICE_ANNOTATION = 9
    """An annotation of the host on a stream of the device, around what was launched in it."""


MOST_RANKS: Final = 1 << 20
"""A rank beyond it is damage."""
LONGEST_NS: Final = 2**50
"""Longer durations (13 days) are damage; thousands of this length add up within int64."""
UNKNOWN: Final = -1
"""In columns of numbers that are not negative."""


class CollectiveArgs(Struct, frozen=True, kw_only=True):
    """Metadata of a collective, from an event's arguments; None if not recorded."""

    operator: str | None = None
    in_elements: int | None = None
    out_elements: int | None = None
    dtype: str | None = None
    group: str | None = None
    group_size: int | None = None
    members: str | None = None
    """The group's ranks as written in the trace, which abbreviates long lists."""
    description: str | None = None
    """What the program calls the group, such as `mesh_tp`."""
    peer: int | None = None
    """Rank on the other side of a send or receive, among all ranks."""
    input_dims: Any = None
    """`Input Dims`: nested lists of sizes, as recorded with shapes."""
    input_type: Any = None
    """`Input type`: a list of types, likewise."""
    is_dispatch: bool = False
    """Whether the event is a `c10d::*` operator, whose arguments include its outputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveArgsColumns:
    """Metadata of collectives, from the events that carry it; columns of shape (s,)."""

    row: Ints
    """Row in `Events`, ascending."""
    number: NDArray[np.int32]
    """Index into `args`."""
    sequence: Ints
    """The collective's sequence number in its process group; -1 if not recorded."""
    args: tuple[CollectiveArgs, ...]
    """The distinct metadata."""

    def args_index(self, rows: Ints) -> Ints:
        """Return each row's index into `args`; -1 for rows without metadata, and for no row (-1)."""
        return at_rows(self.row, self.number, rows)

    def sequence_of(self, rows: Ints) -> Ints:
        """Return each row's sequence number in its process group; -1 if not recorded."""
        return at_rows(self.row, self.sequence, rows)

    def rows_where(self, predicate: Callable[[CollectiveArgs], bool]) -> Ints:
        return self.row[np.array([predicate(args) for args in self.args], np.bool_)[self.number]]


class OperatorInputs(Struct, frozen=True, kw_only=True):
    """Shapes and types of an operator's inputs, as the text of JSON in the trace; decoded when asked for."""

    dims_text: bytes
    types_text: bytes

    @property
    def dims(self) -> list[Any] | None:
        """`Input Dims`: for each input its sizes, of a list of tensors a list of these; None if damaged."""
        return decode_list(self.dims_text)

    @property
    def types(self) -> list[Any] | None:
        """`Input type`: for each input its type, such as `float` or `c10::BFloat16`; None if damaged or missing."""
        return decode_list(self.types_text)


def decode_list(text: bytes) -> list[Any] | None:
    """Decode a list from JSON; None if it is missing, damaged, or not a list."""
    try:
        decoded = msgspec.json.decode(text) if text else None
    except (ValueError, RecursionError):
        return None
    return decoded if isinstance(decoded, list) else None


def _no_ints() -> Ints:
    return np.zeros(0, np.int64)


def _no_numbers() -> NDArray[np.int32]:
    return np.zeros(0, np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorArgsColumns:
    """What the trace records of operators, of those that have it only."""

    sequence_row: Ints = field(default_factory=_no_ints)
    """Rows in `Events` of the operators with a sequence number, ascending; shape (s,)."""
    sequence: Ints = field(default_factory=_no_ints)
    """autograd's sequence number: a backward operator has that of the forward operator that caused it; shape (s,)."""
    forward_thread: Ints = field(default_factory=_no_ints)
    """autograd's number of the thread that ran forward, in backward operators; 0 in others, -1 if missing; (s,)."""
    inputs_row: Ints = field(default_factory=_no_ints)
    """Rows in `Events` of the operators with inputs (`record_shapes`), ascending; shape (i,)."""
    inputs: NDArray[np.int32] = field(default_factory=_no_numbers)
    """Index into `distinct_inputs`; -1 if not kept; shape (i,)."""
    concrete: NDArray[np.int32] = field(default_factory=_no_numbers)
    """Index into `distinct_concrete`; -1 if not kept; shape (i,)."""
    distinct_inputs: tuple[OperatorInputs, ...] = ()
    distinct_concrete: tuple[bytes, ...] = ()
    """`Concrete Inputs`, the values of inputs that are no tensors, as text (`decode_list`); empty if missing."""

    def sequence_of(self, rows: Ints) -> Ints:
        """Return each row's sequence number; -1 without one, and for no row (-1)."""
        return at_rows(self.sequence_row, self.sequence, rows)

    def forward_thread_of(self, rows: Ints) -> Ints:
        """Return each row's thread of forward; -1 without a sequence number, and for no row (-1)."""
        return at_rows(self.sequence_row, self.forward_thread, rows)

    def inputs_of(self, rows: Ints) -> Ints:
        """Return each row's index into `distinct_inputs`; -1 without one, and for no row (-1)."""
        return at_rows(self.inputs_row, self.inputs, rows)

    def concrete_of(self, rows: Ints) -> Ints:
        """Return each row's index into `distinct_concrete`; -1 without one, and for no row (-1)."""
        return at_rows(self.inputs_row, self.concrete, rows)


class KernelLaunch(Struct, frozen=True, kw_only=True):
    """How a kernel was launched; None for what is not recorded."""

    grid: tuple[int, int, int] | None = None
    """Blocks in x, y, z."""
    block: tuple[int, int, int] | None = None
    """Threads of a block in x, y, z."""
    occupancy_percent: float | None = None
    """`est. achieved occupancy %`, kineto's estimate; None if it has none, for which it writes 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceArgsColumns:
    """What the trace records of kernels."""

    kernel_row: Ints = field(default_factory=_no_ints)
    """Rows in `Events` of all kernels, ascending; shape (k,)."""
    launch: NDArray[np.int32] = field(default_factory=_no_numbers)
    """Index into `launches`; -1 if not kept; shape (k,)."""
    launches: tuple[KernelLaunch, ...] = ()
    """The distinct launches."""

    def launch_of(self, rows: Ints) -> Ints:
        """Return each row's index into `launches`; -1 without one, and for no row (-1)."""
        return at_rows(self.kernel_row, self.launch, rows)


def at_rows(row: Ints, column: NDArray[Any], rows: Ints) -> Ints:
    """Return the values of a sparse column, whose rows ascend, at the given rows; -1 where it has none."""
    if not len(row):
        return np.full(len(rows), -1, np.int64)
    place = np.minimum(np.searchsorted(row, rows), len(row) - 1)
    return np.where(row[place] == rows, column[place], -1).astype(np.int64, copy=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Complete events of one trace, in file order; every column has shape (n,)."""

    kind: NDArray[np.uint8]
    name: NDArray[np.int32]
    """Index into `names`."""
    start_ns: Ints
    end_ns: Ints
    thread: NDArray[np.int16] | NDArray[np.int32]
    """Interned (pid, tid)."""
    correlation: NDArray[np.int32] | Ints
    """`args.correlation`, of operators and annotations `External id`; -1 if missing. 64 bits only where needed."""
    names: tuple[str, ...]
    collective_args: CollectiveArgsColumns
    operator_args: OperatorArgsColumns = field(default_factory=OperatorArgsColumns)
    device_args: DeviceArgsColumns = field(default_factory=DeviceArgsColumns)
    threads: tuple[tuple[Id, Id], ...] = ()
    """(pid, tid) by index in `thread`; of work on a device, its number and stream."""
    known_shapes: list[NameShapes] = field(default_factory=list, repr=False, compare=False)
    """The one value of `shapes`, or nothing before it is asked for."""

    @property
    def shapes(self) -> NameShapes:
        """`names` by their shapes: to match them with patterns."""
        if not self.known_shapes:
            self.known_shapes.append(NameShapes(self.names))
        return self.known_shapes[0]

    def rows(self, *kinds: EventKind, named: NDArray[np.bool_] | None = None) -> Ints:
        """Return the rows of the given kinds, in file order; only those of `named`, a mask of names, if given."""
        if named is not None and not named.any():
            return _no_ints()
        rows = np.flatnonzero(self.is_of(*kinds))
        return rows if named is None else rows[named[self.name[rows]]]

    def is_of(self, *kinds: EventKind, rows: Ints | slice = slice(None)) -> NDArray[np.bool_]:
        """Return whether each event, or each of `rows`, is of one of the given kinds."""
        # Not `np.isin`, which takes 100 times as long.
        kind = self.kind[rows]
        return reduce(or_, (kind == one for one in kinds))

    def names_of(self, rows: Ints | NDArray[np.bool_]) -> Ints:
        """Return the distinct names of rows, as indices in ascending order."""
        # Not `np.unique`, which takes 70 times as long as a sort where most names differ (numpy 2.3 and later).
        has = np.zeros(len(self.names), np.bool_)
        has[self.name[rows]] = True
        return np.flatnonzero(has)


class ProcessGroup(Struct, frozen=True, kw_only=True):
    """A process group of the rank, as torch writes it into the header."""

    name: str
    description: str | None = None
    ranks: tuple[int, ...] | None = None
    """None if the trace does not contain them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonFrames:
    """Python functions on the stack (`with_stack`) that ran long enough to matter; columns of shape (f,)."""

    name: Ints = field(default_factory=_no_ints)
    """Index into `names`."""
    start_ns: Ints = field(default_factory=_no_ints)
    end_ns: Ints = field(default_factory=_no_ints)
    thread: Ints = field(default_factory=_no_ints)
    """As in `Events.thread`."""
    names: tuple[str, ...] = ()
    modules: ModuleNames = field(default_factory=dict)
    """Qualified names of modules, by class and number; empty if perfkit did not record them."""

    @property
    def module_rows(self) -> Ints:
        """The calls of modules."""
        return self.rows_where(lambda name: name.startswith(MODULE))

    def rows_where(self, matches: Callable[[str], bool]) -> Ints:
        """Return the frames whose names match."""
        return (
            np.flatnonzero(np.array([*map(matches, self.names)], np.bool_)[self.name]) if len(self.name) else self.name
        )


MODULE: Final = "nn.Module: "
"""What the names of frames of `torch.nn.Module.__call__` begin with; class and number of the instance follow."""


class Header(Struct, frozen=True, kw_only=True):
    """The header of a trace; None for what it does not have."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    host: str | None = None
    base_ns: int = 0
    device_bytes: dict[int, int] = {}
    """Memory of each accelerator, by its number."""
    device_names: dict[int, str] = {}
    """What torch calls each accelerator, by its number."""
    groups: list[ProcessGroup] = []
    """The rank's process groups; empty if the trace does not list them."""
    perfkit: PerfkitHeader | None = None
    recorded: frozenset[str] = frozenset()
    """Options of torch.profiler that were switched on: `with_stack`, `record_shapes`, `profile_memory`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineDetail:
    """Columns that a timeline shows and the analysis does not use."""

    category: NDArray[np.int32]
    """Index into `categories`, shape (n,)."""
    categories: tuple[str, ...]
    thread_names: dict[tuple[Id, Id], str]


HOST: Final = 0
"""torch's number of the device type of the host."""


def device_name(kind: int, number: int) -> str:
    return "CPU" if kind == HOST else f"device {max(number, 0)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocatorTimeline:
    """Memory of one device after each allocation and release, in order of time; columns of shape (m,).

    Only memory of torch's own allocators; the CPU's counts from when memory was first recorded.
    """

    time_ns: Ints
    allocated_bytes: Ints
    reserved_bytes: Ints
    """Memory reserved from the device, allocated or not; -1 if not recorded, 0 on the CPU."""
    before_bytes: int
    """Allocated before the first record; -1 if unknown."""
    change_bytes: Ints
    """What was allocated (positive) or released (negative); 0 if not recorded."""
    address: Ints
    """Of what was allocated or released; -1 if not recorded."""
    thread: NDArray[np.int16] | NDArray[np.int32]
    """As in `Events.thread`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrace:
    """The content of one trace file."""

    header: Header
    events: Events
    counts: dict[EventKind, int]
    """Number of events in the file by kind, kept or not."""
    unknown: dict[str, int] = field(default_factory=dict)
    """Unknown categories, with the number of complete events of each."""
    repaired: dict[Repair, int] = field(default_factory=dict)
    """Number of invalid events by what was done with them."""
    damage: tuple[str, ...] = ()
    """Sentences about missing events: where the file is damaged, or repeats its list of events."""
    header_damage: tuple[str, ...] = ()
    """Sentences about damage of the header alone; no event is missing."""
    recorded_until_ns: int | None = None
    """When the profiler stopped to record, by the host's clock; None if the trace does not have it."""
    frames: PythonFrames = field(default_factory=PythonFrames)
    memory: dict[tuple[int, int], AllocatorTimeline] = field(default_factory=dict)
    """By type and number of a device; empty if not recorded (`profile_memory`)."""
    detail: TimelineDetail | None = None
    """Set only on request; `events` then has the complete events of all kinds."""

    @property
    def is_light(self) -> bool:
        """Whether it was recorded without operators (`--trace-ranks`)."""
        return self.header.perfkit is not None and self.header.perfkit.light
