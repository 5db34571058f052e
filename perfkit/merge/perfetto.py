"""Perfetto's native format: a stream of packets (https://perfetto.dev/docs/reference/trace-packet-proto).

Each part of a rank is a sequence of packets: first what its events refer to by number (names, categories), then the
events in order of time, each with the time since the one before. Packets are compressed in blocks, which Perfetto
undoes as it reads.
"""

from enum import IntEnum
from typing import BinaryIO, Final

import numpy as np
from isal import isal_zlib
from numpy.typing import NDArray

from perfkit.merge.timeline import FIRST_PROCESS, Counter, Part, Threads, Track, lane_name, lanes
from perfkit.merge.wire import Column, message, number, text
from perfkit.trace.intervals import Ints

_BLOCK_ROWS: Final = 1 << 16
_BLOCK_BYTES: Final = 1 << 20
_LEVEL: Final = 2
_ZERO_BASED: Final = 64
"""A clock of the sequence's own, whose times count from the event before."""
_BOOT, _REAL = 6, 1
_BYTES_UNIT: Final = 3


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


class _Event(IntEnum):
    CATEGORY = 3
    TYPE = 9
    NAME = 10
    TRACK = 11
    COUNT = 30
    FLOW = 47


_BEGIN, _END, _COUNT = 1, 2, 4


class PerfettoWriter:
    """Writes parts as packets.

    Args:
        stream: where to.
        base_ns: the instant of the epoch that is zero on the timeline.
    """

    def __init__(self, stream: BinaryIO, base_ns: int) -> None:
        self._stream = stream
        self._base_ns = base_ns
        self._pending = bytearray()
        self._sequence = 0
        self._tracks: dict[tuple[object, ...], int] = {}
        self._threads = Threads()
        if base_ns > 0:  # so that the UI can tell the time of day
            self._packet(message(_Packet.CLOCKS, _clock(_BOOT, 0), _clock(_REAL, base_ns)))

    def write(self, part: Part) -> None:
        """Write one part."""
        self._sequence += 1
        self._process(part)
        columns: list[Ints] = []
        for track in part.tracks:
            if isinstance(track, Counter):
                columns.append(_counts(track, self._counter(part, track.name)))
                continue
            for lane, slices in lanes(track):
                columns.append(_edges(slices, self._thread(part, lane_name(track.name, lane))))
        if columns:
            self._events(part, np.hstack(columns))

    def close(self) -> None:
        """Write what is left."""
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

    def _process(self, part: Part) -> None:
        """Describe the rank, where it is new."""
        self._track(message(3, number(1, FIRST_PROCESS + part.place), text(6, part.name)), "process", part.place)

    def _thread(self, part: Part, name: str) -> int:
        tid, _ = self._threads.number(part.place, name)
        thread = message(4, number(1, FIRST_PROCESS + part.place), number(2, tid), text(5, name))
        return self._track(thread, "thread", part.place, name)

    def _counter(self, part: Part, name: str) -> int:
        """Return the track of a counter, which has a thread to itself: so it stands where it belongs."""
        thread = number(5, self._thread(part, name))
        return self._track(text(2, name) + thread + message(8, number(3, _BYTES_UNIT)), "counter", part.place, name)

    def _track(self, described: bytes, *key: object) -> int:
        """Return the track of that key; describe it when it is new."""
        if key not in self._tracks:
            self._tracks[key] = len(self._tracks) + 1
            self._packet(message(_Packet.TRACK, number(1, self._tracks[key]), described))
        return self._tracks[key]

    # ---- events ----------------------------------------------------------------------------------------------------

    def _events(self, part: Part, columns: Ints) -> None:
        """Write events; rows of `columns` are time, phase, order, type, track, label, category, count and flows."""
        columns = columns[:, np.lexsort((columns[2], columns[1], columns[0]))]
        time_ns, _, _, kind, track, label, category, value, launch, collective = columns
        self._begin_sequence(int(time_ns[0]))
        begins = kind == _BEGIN
        names, name = np.unique(label[begins], return_inverse=True)
        kinds, category_number = np.unique(category[begins], return_inverse=True)
        label[begins], category[begins] = name + 1, category_number + 1
        self._intern(2, [part.labels[index] for index in names.tolist()])
        self._intern(1, [part.categories[index] for index in kinds.tolist()])
        elapsed = np.diff(time_ns, prepend=time_ns[:1])
        table = (elapsed, kind, track, label, category, value, launch, collective)
        for first in range(0, len(kind), _BLOCK_ROWS):
            self._add(self._encoded(*(column[first : first + _BLOCK_ROWS] for column in table)))

    def _begin_sequence(self, at_ns: int) -> None:
        """Say that what came before does not count, and by which clock the times are."""
        at = max(at_ns - self._base_ns, 0)
        defaults = message(_Packet.DEFAULTS, number(_Packet.TIMESTAMP_CLOCK, _ZERO_BASED))
        sequence = number(_Packet.SEQUENCE, self._sequence)
        self._packet(sequence, number(_Packet.FLAGS, 1), defaults)
        clocks = message(_Packet.CLOCKS, _clock(_ZERO_BASED, at, counts_on=True), _clock(_BOOT, at))
        self._packet(sequence, clocks)

    def _intern(self, field: int, words: list[str]) -> None:
        """Give words their numbers, from 1."""
        block: list[bytes] = []
        for index, word in enumerate(words):
            block.append(message(field, number(1, index + 1), text(2, word)))
            if index + 1 == len(words) or sum(map(len, block[-64:])) > _BLOCK_BYTES or len(block) == 64:
                self._packet(number(_Packet.SEQUENCE, self._sequence), message(_Packet.INTERNED, *block))
                block = []

    def _encoded(
        self,
        elapsed: Ints,
        kind: Ints,
        track: Ints,
        label: Ints,
        category: Ints,
        value: Ints,
        launch: Ints,
        collective: Ints,
    ) -> bytes:
        begins: NDArray[np.bool_] = kind == _BEGIN
        event = [Column.numbers(_Event.TYPE, kind), Column.numbers(_Event.TRACK, track)]
        event += [Column.numbers(_Event.NAME, label, begins), Column.numbers(_Event.CATEGORY, category, begins)]
        if (counts := kind == _COUNT).any():
            event.append(Column.numbers(_Event.COUNT, value, counts))
        event += [Column.fixed64(_Event.FLOW, flow, flow > 0) for flow in (launch, collective) if flow.any()]
        packet = (
            Column.numbers(_Packet.TIMESTAMP, elapsed),
            Column.numbers(_Packet.SEQUENCE, np.full(len(kind), self._sequence)),
            Column.joined(event).within(_Packet.EVENT),
        )
        return Column.joined(packet).within(_Packet.PACKET).to_bytes()


def _clock(clock: int, at: int, *, counts_on: bool = False) -> bytes:
    return message(1, number(1, clock), number(2, at), number(3, 1) if counts_on else b"")


def _edges(slices: Track, track: int) -> Ints:
    """Return begins and ends, so that sorting by time, phase and order gives properly nested ones.

    At one instant what has been running ends first; then slices begin, the longest first, and empty ones end at once.
    """
    order = np.lexsort((-slices.end_ns, slices.start_ns))
    start, end, label, category, launch, collective = (column[order] for column in slices[1:])
    place, one = np.arange(len(order)), np.ones(len(order), np.int64)
    none, empty = one * 0, (end == start).astype(np.int64)
    begins = (start, one, 2 * place, _BEGIN * one, track * one, label, category, none, np.abs(launch), collective)
    ends = (end, empty, np.where(empty, 2 * place + 1, -place), _END * one, track * one, *(none,) * 5)
    return np.hstack([np.vstack(begins), np.vstack(ends)])


def _counts(counter: Counter, track: int) -> Ints:
    one = np.ones(len(counter.time_ns), np.int64)
    none = one * 0
    order = np.arange(len(one))
    columns = (counter.time_ns, none, order, _COUNT * one, track * one, none, none, counter.value, none, none)
    return np.vstack(columns)
