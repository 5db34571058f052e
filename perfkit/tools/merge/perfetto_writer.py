"""Write Perfetto's native format: a stream of packets (https://perfetto.dev/docs/reference/trace-packet-proto).

Each part of a rank is a sequence of packets: first interned names and categories, then the events in order of time,
each with the time since its predecessor. Packets are compressed in blocks.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import BinaryIO, Final

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from perfkit.base.protobuf_columns import ProtobufColumn, message, number, text
from perfkit.tools.merge.tracks import FIRST_PROCESS, Counter, RankTracks, Threads, Track, lane_name, lanes
from perfkit.trace.intervals import Ints

_BLOCK_ROWS: Final = 1 << 16
_BLOCK_WORDS: Final = 64
_BLOCK_BYTES: Final = 1 << 20
_LEVEL: Final = 2
_ZERO_BASED: Final = 64
"""The sequence's own incremental clock."""
_BOOT, _REAL = 6, 1
_BYTES_UNIT: Final = 3
_ROOT: Final = 0
"""Track that all others are below."""
_EXPLICIT: Final = 1


class _Packet(IntEnum):
    PACKET = 1
    CLOCKS = 6
    TIMESTAMP = 8
    SEQUENCE = 10
    EVENT = 11
    INTERNED = 12
    FLAGS = 13
    COMPRESSED = 50
    TIMESTAMP_CLOCK = 58
    DEFAULTS = 59
    TRACK = 60


class _Descriptor(IntEnum):
    """Fields of a track's description."""

    UUID = 1
    NAME = 2
    PROCESS = 3
    THREAD = 4
    PARENT = 5
    COUNTER = 8
    ORDER = 12
    PROCESS_ORDERING = 19


class _Event(IntEnum):
    CATEGORY = 3
    ARGUMENT = 4
    TYPE = 9
    NAME = 10
    TRACK = 11
    COUNT = 30
    FLOW = 47


_BEGIN, _END, _COUNT = 1, 2, 4
_CATEGORIES, _NAMES, _ARGUMENT_NAMES, _ARGUMENTS = 1, 2, 3, 29
_ARGUMENT_NAME, _ARGUMENT_TEXT = 1, 17
"""Fields of an argument (`DebugAnnotation`): its name and its text, both interned."""


_ROW: Final = np.dtype(
    [
        ("track", np.int32),
        ("label", np.int32),
        ("category", np.int32),
        ("launch", np.int64),
        ("collective", np.int64),
        ("argument", np.int32),  # -1 for none
        ("argument_name", np.int32),  # index into `_Table.argument_names`
        ("value", np.int64),
        ("is_slice", np.bool_),
    ]
)
"""A slice, or a change of a counter."""
Rows = NDArray[np.void]


class PerfettoWriter:
    """Writes the tracks of ranks as packets.

    Args:
        base_ns: the instant of the epoch that is zero on the timeline.
    """

    def __init__(self, stream: BinaryIO, base_ns: int) -> None:
        self._stream = stream
        self._base_ns = base_ns
        self._pending = bytearray()
        self._sequence = 0
        self._tracks: dict[tuple[object, ...], int] = {}
        self._threads = Threads()
        if base_ns > 0:  # so that the UI can show the time of day
            self._packet(message(_Packet.CLOCKS, _clock(_BOOT, 0), _clock(_REAL, base_ns)))
        # Without that the UI puts the rank with most slices first; it is known to UIs from v57 on.
        ordering = number(_Descriptor.PROCESS_ORDERING, _EXPLICIT)
        self._packet(message(_Packet.TRACK, number(_Descriptor.UUID, _ROOT), ordering))

    def write(self, part: RankTracks) -> int:
        """Write one part and return its number of slices; parts of one rank must be consecutive."""
        self._sequence += 1
        process = message(_Descriptor.PROCESS, number(1, FIRST_PROCESS + part.place), text(6, part.name))
        self._track(process + number(_Descriptor.ORDER, part.place), "process", part.place)
        table = _Table()
        written = 0
        for track in part.tracks:
            if isinstance(track, Counter):
                table.add_counter(track, self._counter(part, track.name))
                continue
            for lane, slices in lanes(track):
                table.add_slices(slices, self._thread(part, lane_name(track.name, lane)))
                written += len(slices.start_ns)
        self._events(part, table)
        return written

    def close(self) -> None:
        if self._pending:
            packed = isal_zlib.compress(bytes(self._pending), _LEVEL)
            self._stream.write(message(_Packet.PACKET, message(_Packet.COMPRESSED, packed)))
            self._pending.clear()

    def _add(self, packets: bytes) -> None:
        self._pending += packets
        if len(self._pending) >= _BLOCK_BYTES:
            self.close()

    def _packet(self, *fields: bytes) -> None:
        self._add(message(_Packet.PACKET, *fields))

    # ---- tracks ----------------------------------------------------------------------------------------------------

    def _thread(self, part: RankTracks, name: str) -> int:
        tid, _ = self._threads.number(part.place, name)
        thread = message(_Descriptor.THREAD, number(1, FIRST_PROCESS + part.place), number(2, tid), text(5, name))
        return self._track(thread, "thread", part.place, name)

    def _counter(self, part: RankTracks, name: str) -> int:
        """Return the track of a counter; a separate thread puts it in the right place."""
        thread = number(_Descriptor.PARENT, self._thread(part, name))
        unit = message(_Descriptor.COUNTER, number(3, _BYTES_UNIT))
        return self._track(text(_Descriptor.NAME, name) + thread + unit, "counter", part.place, name)

    def _track(self, description: bytes, *key: object) -> int:
        """Return the id of the track with that key; describe it if it is new."""
        if key not in self._tracks:
            self._tracks[key] = len(self._tracks) + 1
            self._packet(message(_Packet.TRACK, number(_Descriptor.UUID, self._tracks[key]), description))
        return self._tracks[key]

    # ---- events ----------------------------------------------------------------------------------------------------

    def _events(self, part: RankTracks, table: "_Table") -> None:
        if not len(table):
            return
        time_ns, kind, row, columns = table.in_order()
        self._begin_sequence(int(time_ns[0]))
        words = columns["is_slice"]
        columns["label"][words] = self._intern(_NAMES, part.labels, columns["label"][words])
        columns["category"][words] = self._intern(_CATEGORIES, part.categories, columns["category"][words])
        explained = columns["argument"] >= 0
        columns["argument"][explained] = self._intern(_ARGUMENTS, part.labels, columns["argument"][explained])
        keys = columns["argument_name"]
        keys[explained] = self._intern(_ARGUMENT_NAMES, table.argument_names, keys[explained])
        before_ns = int(time_ns[0])
        for first in range(0, len(time_ns), _BLOCK_ROWS):
            block = slice(first, first + _BLOCK_ROWS)
            elapsed = np.diff(time_ns[block], prepend=before_ns)
            before_ns = int(time_ns[block][-1])
            self._add(self._encoded(elapsed, kind[block], row[block], columns))

    def _begin_sequence(self, at_ns: int) -> None:
        """Reset the sequence's state and define the clock of its times."""
        at = at_ns - self._base_ns
        defaults = message(_Packet.DEFAULTS, number(_Packet.TIMESTAMP_CLOCK, _ZERO_BASED))
        sequence = number(_Packet.SEQUENCE, self._sequence)
        self._packet(sequence, number(_Packet.FLAGS, 1), defaults)
        clocks = message(_Packet.CLOCKS, _clock(_ZERO_BASED, at, counts_on=True), _clock(_BOOT, at))
        self._packet(sequence, clocks)

    def _intern(self, field: int, words: Sequence[str], used: NDArray[np.int32]) -> NDArray[np.int32]:
        """Intern the used words with ids from 1; return the ids in place of the indices."""
        indices, numbers = np.unique(used, return_inverse=True)
        for first in range(0, len(indices), _BLOCK_WORDS):
            block = enumerate(indices[first : first + _BLOCK_WORDS].tolist(), first + 1)
            entries = [message(field, number(1, iid), text(2, words[index])) for iid, index in block]
            self._packet(number(_Packet.SEQUENCE, self._sequence), message(_Packet.INTERNED, *entries))
        return (numbers + 1).astype(np.int32)

    def _encoded(self, elapsed: Ints, kind: NDArray[np.uint8], row: Ints, columns: Rows) -> bytes:
        begins, counts = kind == _BEGIN, kind == _COUNT
        event = [ProtobufColumn.numbers(_Event.TYPE, kind), ProtobufColumn.numbers(_Event.TRACK, columns["track"][row])]
        event.append(ProtobufColumn.numbers(_Event.NAME, columns["label"][row], begins))
        event.append(ProtobufColumn.numbers(_Event.CATEGORY, columns["category"][row], begins))
        explained = begins & (columns["argument"][row] >= 0)
        if explained.any():
            event.append(_arguments(columns, row, explained))
        if counts.any():
            event.append(ProtobufColumn.numbers(_Event.COUNT, columns["value"][row], counts))
        flows = (columns["launch"][row], columns["collective"][row])
        event += [
            ProtobufColumn.fixed64(_Event.FLOW, np.abs(flow), begins & (flow != 0)) for flow in flows if flow.any()
        ]
        packet = (
            ProtobufColumn.numbers(_Packet.TIMESTAMP, elapsed),
            ProtobufColumn.numbers(_Packet.SEQUENCE, np.full(len(kind), self._sequence)),
            ProtobufColumn.joined(event).as_submessage(_Packet.EVENT),
        )
        return ProtobufColumn.joined(packet).as_submessage(_Packet.PACKET).to_bytes()


def _arguments(columns: Rows, row: Ints, present: NDArray[np.bool_]) -> ProtobufColumn:
    """Return the arguments of events, nothing where they have none."""
    fields = (
        ProtobufColumn.numbers(_ARGUMENT_NAME, columns["argument_name"][row], present),
        ProtobufColumn.numbers(_ARGUMENT_TEXT, np.maximum(columns["argument"][row], 0), present),
    )
    whole = ProtobufColumn.joined(fields).as_submessage(_Event.ARGUMENT)
    return ProtobufColumn(whole.table, whole.mask & present[:, None])


class _Table:
    """Collects the slices and counters of a part, and sorts their begins, ends and changes."""

    def __init__(self) -> None:
        self._parts: list[Rows] = []
        self._edges: list[tuple[Ints, Ints, NDArray[np.uint8], Ints]] = []
        self._rows = 0
        self.argument_names: list[str] = []

    def __len__(self) -> int:
        return self._rows

    def add_slices(self, slices: Track, track: int) -> None:
        """Add slices that nest or are disjoint.

        At one instant running slices end first; then slices begin, the longest first, and empty ones end.
        """
        size = len(slices.start_ns)
        order = np.lexsort((-slices.end_ns, slices.start_ns))
        place = np.empty(size, np.int64)
        place[order] = np.arange(size)
        empty = slices.end_ns == slices.start_ns
        self._add_edges(slices.start_ns, 2 * place + 1, _BEGIN)
        self._add_edges(slices.end_ns, np.where(empty, 2 * place + 2, 0), _END)
        if slices.argument_name not in self.argument_names:
            self.argument_names.append(slices.argument_name)
        rows = self._new_rows(size, track)
        rows["is_slice"] = True
        rows["argument_name"] = self.argument_names.index(slices.argument_name)
        for name in ("label", "category", "launch", "collective", "argument"):
            rows[name] = getattr(slices, name)

    def add_counter(self, counter: Counter, track: int) -> None:
        size = len(counter.time_ns)
        self._add_edges(counter.time_ns, np.zeros(size, np.int64), _COUNT)
        rows = self._new_rows(size, track)
        rows["argument"], rows["value"] = -1, counter.value

    def _add_edges(self, time_ns: Ints, order: Ints, kind: int) -> None:
        size = len(time_ns)
        self._edges.append((time_ns, order, np.full(size, kind, np.uint8), np.arange(self._rows, self._rows + size)))

    def _new_rows(self, size: int, track: int) -> Rows:
        rows = np.zeros(size, _ROW)
        rows["track"] = track
        self._parts.append(rows)
        self._rows += size
        return rows

    def in_order(self) -> tuple[Ints, NDArray[np.uint8], Ints, Rows]:
        """Return for each event its time, kind and row; and the columns."""
        columns = np.concatenate(self._parts)
        self._parts.clear()
        time_ns, order, kind, row = (np.concatenate(column) for column in zip(*self._edges, strict=True))
        self._edges.clear()
        by = np.lexsort((order, time_ns))
        return time_ns[by], kind[by], row[by], columns


def _clock(clock: int, at: int, *, counts_on: bool = False) -> bytes:
    return message(1, number(1, clock), number(2, at), number(3, 1) if counts_on else b"")
