"""Reduces a trace that torch has written to what a light rank leaves: what ran when, not which operators it was.

Kept are annotations, operators that communicate or compile, and device activities with the calls that launched them,
without arguments that only explain them. Without a device, a thread's other operators are the spans in which any ran.
The breakdown of the steps is that of the whole trace. Beyond `MOST_BYTES` per step neighbours become one span, those
with the shortest pauses between them first.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.kinds.classify import COMPILING, DATA_LOADING, TIMED_BY_COMPILER
from perfkit.engine.kinds.kernel_rules import NO_RULE, kernel_code
from perfkit.record.recording.lane_rewriter import EVENT, event_pieces
from perfkit.trace.categories import communication_operators, kind_of
from perfkit.trace.events import EventKind
from perfkit.trace.intervals import Ints, Union, innermost_segments, union
from perfkit.trace.timestamps import to_nanoseconds

MOST_BYTES: Final = 2_000_000
"""Most that the events of a step take, before compression."""
JOINED: Final = b""
"""Name of a span that stands for several operators or kernels."""

_SLICE: Final = re.compile(
    rb'\s*"ph": "X",\s+"cat": "((?:[^"\\]|\\.)*+)",\s+"name": "((?:[^"\\]|\\.)*+)",'
    rb'\s+("pid": [^,\n]+,\s+"tid": [^,\n]+),\s+"ts": ([0-9.]+),\s+"dur": ([0-9.]+)'
)
_INSTANT: Final = b'"cpu_instant_event"'
"""Category of allocations."""
_FLOW: Final = re.compile(rb'\s*"ph": "[stf]"')
_ARGUMENT: Final = re.compile(rb'"(?:device|stream|correlation)": (?:-?\d+|"[^"\\]*")')
_CORRELATION: Final = re.compile(rb'"correlation": \d+')
_COLLECTIVE: Final = b'"Collective name"'
_STEP: Final = re.compile(rb"ProfilerStep#\d+$")
_NEEDED: Final = re.compile(rf"ProfilerStep#\d+$|perfkit\.|{DATA_LOADING}")
_LIST: Final = b'"traceEvents"'
_FAR_NS: Final = 1 << 62
_CALL_BYTES: Final = 130
_JOINED_BYTES: Final = 300
"""About what a call, and a joined kernel with its call, take."""


class _Slice(NamedTuple):
    """A complete event, its fields as JSON spells them."""

    category: bytes
    name: bytes
    where: bytes
    """Its `pid` and `tid`."""
    ts: bytes
    dur: bytes
    arguments: bytes = b""
    """Those of its arguments that are kept."""

    def text(self) -> bytes:
        """Return the event from behind its opening brace."""
        arguments = b', "args": {%s}' % self.arguments if self.arguments else b""
        return b'"ph": "X", "cat": "%s", "name": "%s", %s, "ts": %s, "dur": %s%s},' % (*self[:5], arguments)


def write_light(trace: Path, target: Path) -> None:
    """Write the light trace of a whole one, both as plain JSON in torch's layout.

    Raises:
        OSError: A file cannot be read or written.
    """
    light, events = _Light(), _events(trace)
    head, last = next(events), b""
    for event in events:
        if last:
            light.add(last)
        last = event  # the end of the file stands behind the last one
    with target.open("wb") as stream:
        stream.write(head)
        stream.writelines(EVENT + event for event in light.events())
        stream.write(EVENT + last if last else b"")


def _events(trace: Path) -> Iterator[bytes]:
    """Yield what comes before the list of events, and each event from behind its opening brace."""
    head: list[bytes] | None = []
    rest = b""
    for _, piece in event_pieces(trace):
        *whole, rest = (rest + piece).split(EVENT)
        for part in whole:
            if head is None:
                yield part
                continue
            head.append(part)
            if _LIST in part:
                yield EVENT.join(head)
                head = None
    yield EVENT.join([*(head or ()), rest])


class _Light:
    """What is kept of a trace, collected event by event."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []
        self._annotations: list[bytes] = []
        """Those that are left out if there are too many."""
        self._operators: list[_Slice] = []
        self._kernels: list[_Slice] = []
        self._alone: list[_Slice] = []
        """Device activities with which none is joined: copies, and kernels of a known kind, such as communication."""
        self._calls: dict[bytes, _Slice] = {}
        self._steps: list[_Slice] = []

    def add(self, event: bytes) -> None:
        match = _SLICE.match(event)
        if match is None:
            if not _FLOW.match(event) and _INSTANT not in event:
                self._kept.append(event)
            return
        one = _Slice(*match.groups())
        kind = kind_of(_text(one.category))
        if kind in (EventKind.KERNEL, EventKind.COPY):
            self._add_on_device(one, event, kind)
        elif kind == EventKind.LAUNCH:
            if correlation := _CORRELATION.search(event):
                self._calls.setdefault(correlation[0], one._replace(arguments=correlation[0]))
        elif kind in (EventKind.OPERATOR, EventKind.ANNOTATION):
            self._add_on_host(one, event, kind)
        elif kind not in (EventKind.PYTHON, EventKind.OTHER):
            self._kept.append(event)

    def _add_on_host(self, one: _Slice, event: bytes, kind: EventKind) -> None:
        if kind == EventKind.ANNOTATION:
            if _STEP.match(one.name):
                self._steps.append(one)
            (self._kept if _NEEDED.match(_text(one.name)) else self._annotations).append(event)
            return
        if _is_kept(one.name):
            self._kept.append(event)
        self._operators.append(one)

    def events(self) -> Iterator[bytes]:
        """Yield the events of the light trace, from behind their opening braces."""
        most = MOST_BYTES * max(1, len(self._steps))
        kept_bytes = sum(map(len, self._kept))
        annotated_bytes = sum(map(len, self._annotations))
        annotations = self._annotations if kept_bytes + annotated_bytes <= most // 2 else []
        yield from self._kept
        yield from annotations
        around = [one.text() for one in _around_communication(self._operators)]
        yield from around
        left = most - kept_bytes - (annotated_bytes if annotations else 0) - sum(map(len, around))
        if self._kernels or self._alone:
            yield from self._on_device(left)
        else:
            yield from self._on_host(left)

    def _add_on_device(self, one: _Slice, event: bytes, kind: EventKind) -> None:
        if _COLLECTIVE in event:  # all that is known of it is needed
            self._kept.append(event)
            correlation = _CORRELATION.search(event)
            self._alone.append(one._replace(name=b"", arguments=correlation[0] if correlation else b""))
            return
        one = one._replace(arguments=b", ".join(_ARGUMENT.findall(event)))
        has_kind = kind == EventKind.COPY or _has_kind(one.name)
        (self._alone if has_kind else self._kernels).append(one)

    def _on_device(self, left: int) -> Iterator[bytes]:
        """Yield device activities and the calls that launched them, in about `left` bytes."""
        for one in self._alone:
            if one.name:
                yield one.text()
            yield from self._call(one)
        left -= sum(len(one.text()) + _CALL_BYTES for one in self._alone)
        start, end = _times(self._kernels)
        calls = [self._calls.get(_correlation(one)) for one in self._kernels]
        launched, _ = _times([call or one for call, one in zip(calls, self._kernels, strict=True)])
        lane = _lanes(self._kernels, self._step_of(launched), start, self._alone)
        sizes = [len(one.text()) + _CALL_BYTES for one in self._kernels]
        joined = join_neighbours(lane, start, end, max(1, left // _JOINED_BYTES) if sum(sizes) > left else len(sizes))
        for first, end_ns, count in zip(*(column.tolist() for column in joined), strict=True):
            one = self._kernels[first]
            if count > 1:
                one = one._replace(name=JOINED, dur=_microseconds(end_ns - int(start[first])))
            yield one.text()
            yield from self._call(one)

    def _call(self, activity: _Slice) -> Iterator[bytes]:
        """Yield what launched an activity; of a graph's kernels, which share a call, with the first."""
        call = self._calls.pop(_correlation(activity), None)
        if call is not None:
            yield call.text()

    def _on_host(self, left: int) -> Iterator[bytes]:
        """Yield the spans in which operators ran that are not kept, in about `left` bytes."""
        found = [*_spans(self._operators)]
        if not found:
            return
        start, end = (np.concatenate([getattr(spans, side) for _, spans in found]) for side in ("start", "end"))
        thread = np.repeat(np.arange(len(found)), [len(spans.start) for _, spans in found])
        lane = thread * (len(self._steps) + 1) + self._step_of(start)
        most = max(1, left // _JOINED_BYTES)
        for first, end_ns, _ in zip(*(c.tolist() for c in join_neighbours(lane, start, end, most)), strict=True):
            begin_ns = int(start[first])
            where = found[thread[first]][0]
            times = _microseconds(begin_ns), _microseconds(end_ns - begin_ns)
            yield _Slice(b"cpu_op", JOINED, where, *times).text()

    def _step_of(self, instant_ns: Ints) -> Ints:
        return np.searchsorted(np.sort(_times(self._steps)[0]), instant_ns, side="right")


class Joined(NamedTuple):
    """Spans that neighbours were joined to; columns of shape (spans,)."""

    first: Ints
    """Index of the first of each."""
    end: Ints
    merged: Ints
    """How many each was."""


def join_neighbours(lane: Ints, start: Ints, end: Ints, most: int) -> Joined:
    """Join neighbours of a lane, those with the shortest pauses first, until `most` spans are left, or one per lane."""
    order = np.lexsort((start, lane))
    lane, start = lane[order], start[order]
    pause = np.append(_FAR_NS, np.where(np.diff(lane), _FAR_NS, start[1:] - end[order][:-1]))[: len(order)]
    begins = np.ones(len(order), np.bool_)
    if len(order) > most:
        begins[np.argsort(pause, kind="stable")[: len(order) - most]] = False
        begins |= pause == _FAR_NS
    place = np.flatnonzero(begins)
    ends = np.maximum.reduceat(end[order], place) if len(place) else end
    return Joined(order[place], ends, np.diff(np.append(place, len(order))))


def _by_thread(operators: Iterable[_Slice]) -> dict[bytes, list[_Slice]]:
    by_thread: dict[bytes, list[_Slice]] = {}
    for one in operators:
        by_thread.setdefault(one.where, []).append(one)
    return by_thread


def _around_communication(operators: Sequence[_Slice]) -> Iterator[_Slice]:
    """Yield the operators in which another communicates: they tell what issues it, such as a bucket of DDP."""
    for own in _by_thread(operators).values():
        start, end = _times(own)
        kept = np.array([_is_kept(one.name) for one in own], np.bool_)
        issued_ns = np.sort(start[kept])
        contains = np.searchsorted(issued_ns, end) > np.searchsorted(issued_ns, start)
        yield from (own[place] for place in np.flatnonzero(contains & ~kept).tolist())


def _spans(operators: Sequence[_Slice]) -> Iterator[tuple[bytes, Union]]:
    """Yield each thread, and when an operator that is not kept is the innermost one there."""
    for where, own in _by_thread(operators).items():
        cut = innermost_segments(*_times(own))
        left_out = ~np.array([_is_kept(one.name) for one in own], np.bool_)[cut.owner]
        yield where, union(cut.start[left_out], cut.end[left_out])


def _lanes(kernels: Sequence[_Slice], step: Ints, start: Ints, alone: Sequence[_Slice]) -> Ints:
    """Return a number for the kernels of a stream and step that no other activity is between."""
    streams = {where: number for number, where in enumerate({one.where for one in (*kernels, *alone)})}
    stream, of_alone = (np.array([streams[one.where] for one in own], np.int64) for own in (kernels, alone))
    alone_ns, _ = _times(alone)
    between = np.zeros(len(start), np.int64)
    for number in streams.values():
        own = stream == number
        between[own] = np.searchsorted(np.sort(alone_ns[of_alone == number]), start[own])
    _, lane = np.unique(np.stack((stream, step, between)), axis=1, return_inverse=True)
    return np.asarray(lane, np.int64).reshape(-1)


def _times(slices: Sequence[_Slice]) -> tuple[Ints, Ints]:
    """Return when events begin and end, in ns."""
    start, _ = to_nanoseconds([one.ts for one in slices])
    dur, _ = to_nanoseconds([one.dur for one in slices])
    return start, start + dur


def _microseconds(ns: int) -> bytes:
    return b"%d.%03d" % divmod(ns, 1000)


def _correlation(one: _Slice) -> bytes:
    match = _CORRELATION.search(one.arguments)
    return match[0] if match else b""


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


@lru_cache(maxsize=1 << 16)
def _is_kept(name: bytes) -> bool:
    """Return whether an operator of this name is kept: it communicates, or compiles."""
    text = _text(name)
    return bool(communication_operators().match(text) or COMPILING.match(text) or TIMED_BY_COMPILER.search(text))


@lru_cache(maxsize=1 << 16)
def _has_kind(name: bytes) -> bool:
    return kernel_code(_text(name), ()) != NO_RULE
