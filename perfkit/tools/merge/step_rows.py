"""The rows of one step's timeline: categories, idle time by cause, host threads, streams, communication."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.idle.attribution import attribute, find_gaps
from perfkit.engine.idle.pieces import merge_neighbours
from perfkit.engine.kinds.classify import rows_by_key
from perfkit.engine.trace_context import TraceContext
from perfkit.records.per_rank.idle import CAUSE_WORDS, CAUSES
from perfkit.records.per_run.step_timeline import NAME_LENGTH, StepTimeline, TimelineLane, TimelineRow
from perfkit.tables.instances import collective_title
from perfkit.tables.labels import LONG
from perfkit.tools.merge.rank_tracks import exclusive
from perfkit.trace.events import EventKind
from perfkit.trace.intervals import Ints, Union, measure, rows_of

MOST_EVENTS: Final = 2_000
"""Of the host and of the device each, the longest; a page has no room for all."""
MOST_CELLS: Final = 3_000
"""Slices of the row of categories; with more pieces than this, it has as many cells."""
MOST_PIECES: Final = 2_000
"""Of idle time, the longest."""
_MOST_DEPTH: Final = 8
_MOST_THREADS: Final = 5
_WORDS: Final[Mapping[str, str]] = {str(name): words for name, words in LONG.items()}


Links = Mapping[tuple[int, int], int]
"""Start and end of a rank's collectives, and their place in `RunReport.linked_collectives`."""


def step_timeline(
    read: TraceContext, place: int, links: Links, *, rank: int | None, trace: str, begin_ns: int | None
) -> StepTimeline:
    """Return the timeline of a step.

    Args:
        place: the step's place in `read.steps`.
        begin_ns: the start of the step's window by the reference clock; None if unknown.
    """
    return _StepRows(read, place, links).timeline(rank, trace, begin_ns)


class _Slices(NamedTuple):
    """Slices by absolute time, with an index into `_StepRows.texts` each; columns of shape (n,)."""

    start: Ints
    end: Ints
    text: Ints
    link: Ints | None = None
    """As in `TimelineRow`."""

    def where(self, rows: Ints) -> "_Slices":
        link = None if self.link is None else self.link[rows]
        return _Slices(self.start[rows], self.end[rows], self.text[rows], link)


class _StepRows:
    """Collects the rows of one step."""

    def __init__(self, read: TraceContext, place: int, links: Links) -> None:
        self.read = read
        self.place = place
        self.links = links
        self.begin, self.end = (int(edge) for edge in read.steps.bounds[place : place + 2])
        self.texts: dict[str, int] = {}
        self.left_out = 0
        self.cell_ns: int | None = None

    def timeline(self, rank: int | None, trace: str, begin_ns: int | None) -> StepTimeline:
        rows = [
            *self._categories(),
            *self._idle(),
            *self._communication(),
            *self._device_rows(),
            *self._host_rows(),
        ]
        return StepTimeline(
            rank=rank,
            step=self.read.steps.number[self.place],
            trace=trace,
            begin_ns=begin_ns,
            window_ns=self.end - self.begin,
            names=list(self.texts),
            rows=rows,
            left_out=self.left_out,
            cell_ns=self.cell_ns,
        )

    # ---- rows of slices --------------------------------------------------------------------------------------------

    def _text(self, text: str) -> int:
        return self.texts.setdefault(text[:NAME_LENGTH], len(self.texts))

    def _row(self, lane: TimelineLane, title: str, slices: _Slices) -> TimelineRow:
        return TimelineRow(
            lane=lane,
            title=title,
            start_ns=(slices.start - self.begin).tolist(),
            duration_ns=(slices.end - slices.start).tolist(),
            name=slices.text.tolist(),
            link=[] if slices.link is None else slices.link.tolist(),
        )

    def _nested(self, lane: TimelineLane, title: str, slices: _Slices) -> Iterator[TimelineRow]:
        """Yield a row per level of nesting; slices below the deepest row are left out."""
        slices = slices.where(np.lexsort((-slices.end, slices.start)))
        level = np.array(_levels(slices.start.tolist(), slices.end.tolist()), np.int64)
        self.left_out += int(np.count_nonzero(level >= _MOST_DEPTH))
        for depth in range(min(int(level.max(initial=-1)) + 1, _MOST_DEPTH)):
            yield self._row(lane, title, slices.where(np.flatnonzero(level == depth)))

    def _clipped(self, start: Ints, end: Ints) -> tuple[Ints, Ints]:
        return np.maximum(start, self.begin), np.minimum(end, self.end)

    def _within(self, rows: Ints) -> Ints:
        """Return those of an event's rows that take time in the step's window."""
        events = self.read.events
        start, end = self._clipped(events.start_ns[rows], events.end_ns[rows])
        return rows[end > start]

    def _longest(self, rows: Ints, most: int) -> Ints:
        if len(rows) <= most:
            return rows
        self.left_out += len(rows) - most
        events = self.read.events
        length = events.end_ns[rows] - events.start_ns[rows]
        return np.sort(rows[np.argpartition(-length, most)[:most]])

    def _events(self, rows: Ints) -> _Slices:
        events = self.read.events
        names = {name: self._text(events.names[name]) for name in np.unique(events.name[rows]).tolist()}
        text = np.array([names[name] for name in events.name[rows].tolist()], np.int64)
        return _Slices(*self._clipped(events.start_ns[rows], events.end_ns[rows]), text)

    # ---- where the time goes ---------------------------------------------------------------------------------------

    def _categories(self) -> Iterator[TimelineRow]:
        shown = np.arange(len(self.read.steps.number)) == self.place
        spans = exclusive(self.read.activity, self.read.steps, shown)
        labels = list(dict.fromkeys(spans.label))
        numbers = {label: number for number, label in enumerate(labels)}
        kind = np.array([numbers[label] for label in spans.label], np.int64)
        start, end = spans.start_ns, spans.end_ns
        if len(start) > MOST_CELLS:
            start, end, kind = self._in_cells(start, end, kind, len(labels))
        texts = np.array([self._text(_WORDS.get(label, label)) for label in labels], np.int64)
        yield self._row("category", "where the time goes", _Slices(start, end, texts[kind]))

    def _in_cells(self, start: Ints, end: Ints, kind: Ints, kinds: int) -> tuple[Ints, Ints, Ints]:
        """Return cells of equal length, each with what takes most of it; equal neighbours are joined."""
        edges = self.begin + np.arange(MOST_CELLS + 1) * (self.end - self.begin) // MOST_CELLS
        self.cell_ns = (self.end - self.begin) // MOST_CELLS
        taken = [measure(Union(start[kind == one], end[kind == one]), edges[:-1], edges[1:]) for one in range(kinds)]
        most = np.argmax(np.array(taken), axis=0)
        opens = np.flatnonzero(np.diff(most, prepend=-1))
        return edges[opens], np.append(edges[opens[1:]], edges[-1]), most[opens]

    def _idle(self) -> Iterator[TimelineRow]:
        read = self.read
        gaps = find_gaps(read.activity, read.steps)
        here = (gaps.start >= self.begin) & (gaps.end <= self.end)
        gaps = Union(gaps.start[here], gaps.end[here])
        if not len(gaps.start):
            return
        found = merge_neighbours(attribute(read.device, gaps, read.host, read.threads), gaps.start)
        if len(found.start) > MOST_PIECES:
            self.left_out += len(found.start) - MOST_PIECES
            found = rows_of(found, np.sort(np.argpartition(found.start - found.end, MOST_PIECES)[:MOST_PIECES]))
        columns = zip(found.cause.tolist(), found.detail.tolist(), found.context.tolist(), strict=True)
        text = np.array([self._text(self._cause(*one)) for one in columns], np.int64)
        yield self._row("idle", "idle, by cause", _Slices(found.start, found.end, text))

    def _cause(self, cause: int, detail: int, context: int) -> str:
        texts = self.read.host.texts
        around = texts.text(context)
        where = f" in {around}" if around else ""
        return f"{CAUSE_WORDS[CAUSES[cause]]}: {texts.text(detail)}{where}"

    # ---- what runs -------------------------------------------------------------------------------------------------

    def _communication(self) -> Iterator[TimelineRow]:
        calls = self.read.collectives
        start, end = self._clipped(calls.start, calls.end)
        here = np.flatnonzero(end > start)
        dimensions = [calls.kinds[kind].dimension or "" for kind in calls.kind[here].tolist()]
        for dimension in sorted(set(dimensions)):
            rows = here[[one == dimension for one in dimensions]]
            text = np.array([self._text(_described(calls.kinds[kind])) for kind in calls.kind[rows].tolist()], np.int64)
            title = f"communication, {dimension}" if dimension else "communication"
            times = zip(calls.start[rows].tolist(), calls.end[rows].tolist(), strict=True)
            link = np.array([self.links.get(one, -1) for one in times], np.int64)
            yield from self._nested("communication", title, _Slices(start[rows], end[rows], text, link))

    def _device_rows(self) -> Iterator[TimelineRow]:
        device, events = self.read.device, self.read.events
        if not len(device.row):
            return
        kept = self._longest(self._within(device.row[device.is_compute | device.is_copy]), MOST_EVENTS)
        copies = np.isin(kept, device.row[device.is_copy])
        for number, (_, rows) in enumerate(sorted(rows_by_key(events.thread, kept[~copies]).items()), 1):
            yield from self._nested("compute", f"compute, stream {number}", self._events(rows))
        if copies.any():
            yield from self._nested("copy", "copies", self._events(kept[copies]))

    def _host_rows(self) -> Iterator[TimelineRow]:
        events, main = self.read.events, self.read.threads.main
        kept = self._longest(
            self._within(events.rows(EventKind.ANNOTATION, EventKind.OPERATOR, EventKind.LAUNCH)), MOST_EVENTS
        )
        by_thread = rows_by_key(events.thread, kept)
        busy = {thread: int((events.end_ns[rows] - events.start_ns[rows]).sum()) for thread, rows in by_thread.items()}
        order = sorted(by_thread, key=lambda thread: (thread != main, -busy[thread]))
        self.left_out += sum(len(by_thread[thread]) for thread in order[_MOST_THREADS:])
        for number, thread in enumerate(order[:_MOST_THREADS], 1):
            title = "main thread" if thread == main else f"thread {number}"
            rows = by_thread[thread]
            annotated = events.kind[rows] == EventKind.ANNOTATION
            if annotated.any():
                yield from self._nested("annotation", f"{title}, annotations", self._events(rows[annotated]))
            if not annotated.all():
                yield from self._nested("operator", f"{title}, operators and calls", self._events(rows[~annotated]))


def _described(kind: CollectiveKey) -> str:
    return collective_title(kind.operator, kind.bytes, kind.group_size)


def _levels(start: Sequence[int], end: Sequence[int]) -> list[int]:
    """Return how many earlier slices are still running as each begins; slices of one level never overlap."""
    levels: list[int] = []
    running: list[int] = []
    for begins, ends in zip(start, end, strict=True):
        while running and running[-1] <= begins:
            running.pop()
        levels.append(len(running))
        running.append(ends)
    return levels
