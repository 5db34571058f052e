"""Build the tracks of one trace: its threads and streams, and perfkit's own tracks above them."""

from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.base.parsing import Ranges
from perfkit.base.step_numbers import numbered
from perfkit.engine.breakdown import Activity
from perfkit.engine.ranks.clock_alignment import aligned
from perfkit.engine.steps.windows import Steps, numbered_in_run
from perfkit.engine.trace_context import TraceContext
from perfkit.pipeline.summarize import Options
from perfkit.records.common import CATEGORIES
from perfkit.records.cross_rank import HostClock
from perfkit.records.rank import StepBreakdown
from perfkit.tools.merge.collective_links import CollectiveLinks, Spans
from perfkit.tools.merge.slices import find_module_work, loader_slices, loader_track, pipeline_slices
from perfkit.tools.merge.tracks import Counter, RankTracks, Track
from perfkit.trace.events import EventKind, RankTrace, TimelineDetail, device_name
from perfkit.trace.intervals import Ints, Union, covers

OWN_CATEGORY: Final = "perfkit"
STEP_TRACK: Final = "perfkit: step"
CATEGORY_TRACK: Final = "perfkit: where the time goes"
WAIT_TRACK: Final = "perfkit: waits for another rank"
DELAY_TRACK: Final = "perfkit: delays other ranks"
DIMENSION_TRACK: Final = "perfkit: communication by dimension"
PATH_TRACK: Final = "perfkit: critical path"
PIPELINE_TRACK: Final = "perfkit: pipeline"
MODULE_TRACK: Final = "perfkit: modules"
MODULE_ARGUMENT: Final = "module"
IN_FLIGHT: Final = "perfkit: bytes in flight"
MEMORY: Final = "perfkit: memory allocated"
_RANGE_NS: Final = 2**53
"""104 days from the timeline's zero: later than any event of the run, and than a float resolves nanoseconds."""


class Rank(NamedTuple):
    """A rank on the timeline."""

    place: int
    """From the top."""
    number: int | None
    name: str
    files: list[Path]
    steps: list[StepBreakdown]
    """Of all its traces, with the numbers that they have in the run."""
    clock: HostClock | None
    stage: int | None
    """Its place in a pipeline; None without one."""


class Plan(NamedTuple):
    """How to show one trace."""

    rank: Rank
    options: Options
    steps: Ranges | None
    links: CollectiveLinks | None
    """None for all but the first trace of a rank."""
    path: Spans | None
    """What of the run's critical path is the rank's, by the reference clock; None as `links`, or if nothing is."""
    arrows: dict[int, int]
    arrow_ends: dict[int, tuple[int, int]]
    first_launch: int
    """Number of the first arrow from a launch to its kernel."""
    base_ns: int
    """The instant that is zero on the timeline."""


class _Labels(dict[str, int]):
    """Indices of labels that are added to those of the trace."""

    def __init__(self, initial: tuple[str, ...]) -> None:
        super().__init__()
        self.all = list(initial)

    def __missing__(self, label: str) -> int:
        self.all.append(label)
        self[label] = index = len(self.all) - 1
        return index


def build_rank_tracks(trace: RankTrace, plan: Plan) -> RankTracks:
    """Return the tracks of a trace that was read with `detailed`."""
    context = plan.options.context(trace, plan.rank.name)
    if context.trace.detail is None:
        raise ValueError("the trace was not read with `detailed`")
    context.steps = numbered_in_run(context.steps, plan.rank.steps)
    return _TrackBuilder(context, context.trace.detail, plan).build()


class _TrackBuilder:
    def __init__(self, context: TraceContext, detail: TimelineDetail, plan: Plan) -> None:
        self.context, self.detail, self.plan = context, detail, plan
        self.events, self.device, self.steps = context.events, context.device, context.steps
        self.labels = _Labels(self.events.names)
        wanted = plan.steps
        shown = [wanted is None or (number is not None and number in wanted) for number in self.steps.number]
        self.shown = np.array(shown)
        """Mask of the steps that are shown; shape (k,)."""
        self.out_of_range = 0
        self.module = np.full(len(self.events.kind), -1, np.int64)
        """Label of the module that each event belongs to; -1 for none."""

    def build(self) -> RankTracks:
        plan = self.plan
        tracks: list[Track | Counter] = [*self._own_tracks(), *self._counters(), *self._loaders(), *self._threads()]
        return RankTracks(
            place=plan.rank.place,
            name=plan.rank.name,
            tracks=tracks,
            labels=self.labels.all,
            categories=[*self.detail.categories, OWN_CATEGORY],
            arrow_ends=plan.arrow_ends,
            out_of_range=self.out_of_range,
        )

    def _aligned(self, time_ns: Ints) -> Ints:
        clock = self.plan.rank.clock
        return aligned(clock, time_ns) if clock else time_ns

    def _in_range(self, time_ns: Ints) -> NDArray[np.bool_]:
        """Return a mask of the (aligned) instants that are on the timeline."""
        base_ns = self.plan.base_ns
        return (time_ns >= base_ns) & (time_ns < base_ns + _RANGE_NS)

    def _select(self, in_range: NDArray[np.bool_], wanted: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the conjunction, and count what is wanted but outside the timeline."""
        self.out_of_range += int(np.count_nonzero(wanted & ~in_range))
        return in_range & wanted

    # ---- selection -------------------------------------------------------------------------------------------------

    def _windows(self) -> tuple[Ints, Ints]:
        """Return start and end of the shown steps, on the host and on the device."""
        if self.plan.steps is None:
            return np.array([np.iinfo(np.int64).min]), np.array([np.iinfo(np.int64).max])
        return self.steps.host_start_ns[self.shown], self.steps.bounds[1:][self.shown]

    def _rows(self) -> Ints:
        """Return the shown events: those that begin in the selected steps, device events by their launch."""
        events = self.events
        rows = _within(events.start_ns, *self._windows())
        if self.plan.steps is not None:
            step = self.steps.device_step
            rows[self.device.row] = (step >= 0) & self.shown[np.maximum(step, 0)]
        in_range = self._in_range(self._aligned(events.start_ns)) & self._in_range(self._aligned(events.end_ns))
        return np.flatnonzero(self._select(in_range, rows))

    # ---- tracks of the trace ---------------------------------------------------------------------------------------

    def _threads(self) -> Iterator[Track]:
        events, rows = self.events, self._rows()
        launch, collective = self._launch_arrows(rows), self._collective_arrows(rows)
        rows = rows[np.argsort(events.thread[rows], kind="stable")]
        cuts = np.flatnonzero(np.diff(events.thread[rows])) + 1
        tracks = []
        for number, here in enumerate(np.split(rows, cuts) if len(rows) else ()):
            thread = int(events.thread[here[0]])
            kinds = set(np.unique(events.kind[here]).tolist())
            order = (self._order(kinds, here), number)
            track = Track(
                name=self._thread_name(thread, kinds),
                start_ns=self._aligned(events.start_ns[here]),
                end_ns=self._aligned(events.end_ns[here]),
                label=events.name[here].astype(np.int64),
                category=self.detail.category[here].astype(np.int64),
                launch=launch[here],
                collective=collective[here],
                argument=self.module[here],
                argument_name=MODULE_ARGUMENT,
            )
            tracks.append((order, track))
        yield from _with_unique_names([track for _, track in sorted(tracks, key=lambda item: item[0])])

    def _order(self, kinds: set[int], rows: Ints) -> int:
        """Return the sort key of a thread: the one with the steps, other threads, devices, others."""
        if kinds & {EventKind.KERNEL, EventKind.COPY}:
            return 2
        if not kinds - {EventKind.OTHER, EventKind.UNKNOWN, EventKind.TOOL, EventKind.DEVICE_ANNOTATION}:
            return 3
        steps = self.steps.host_start_ns if self.steps.from_annotations else rows[:0]
        annotations = rows[self.events.kind[rows] == EventKind.ANNOTATION]
        return 0 if np.isin(steps, self.events.start_ns[annotations]).any() else 1

    def _thread_name(self, thread: int, kinds: set[int]) -> str:
        pid, tid = self.events.threads[thread]
        on_device = bool(kinds & {EventKind.KERNEL, EventKind.COPY})
        what = "stream" if on_device else "thread"
        recorded = self.detail.thread_names.get((pid, tid), "").strip() or str(tid)
        name = recorded if recorded.startswith(what) else f"{what} {recorded}"
        return f"{name} (device {pid})" if on_device else name

    def _launch_arrows(self, rows: Ints) -> Ints:
        """Return the number of the arrow that begins (or, negative, ends) at each event, 0 for none.

        If one launch started several activities, the arrow goes to the first.
        """
        events, device = self.events, self.device
        arrow = np.zeros(len(events.kind), np.int64)
        shown = np.zeros(len(events.kind), np.bool_)
        shown[rows] = True
        linked = np.flatnonzero((device.launch_row >= 0) & shown[device.row])
        linked = linked[shown[device.launch_row[linked]]]
        linked = linked[events.start_ns[device.launch_row[linked]] <= events.start_ns[device.row[linked]]]
        linked = linked[np.argsort(events.start_ns[device.row[linked]], kind="stable")]
        nonempty = events.end_ns > events.start_ns
        linked = linked[nonempty[device.row[linked]] & nonempty[device.launch_row[linked]]]
        launches, first = np.unique(device.launch_row[linked], return_index=True)
        number = self.plan.first_launch + np.arange(len(launches))
        arrow[launches], arrow[device.row[linked[first]]] = number, -number
        return arrow

    def _collective_arrows(self, rows: Ints) -> Ints:
        arrow = np.zeros(len(self.events.kind), np.int64)
        if not self.plan.arrows:
            return arrow
        for row in self._communicating(rows).tolist():
            arrow[row] = self.plan.arrows.pop(int(self.events.start_ns[row]), 0)
        return arrow

    def _communicating(self, rows: Ints) -> Ints:
        """Return the events of collectives: kernels, or annotations of the backend."""
        if len(self.device.row):
            return np.intersect1d(self.device.row[self.device.is_communication], rows)
        annotations: Ints = rows[self.events.kind[rows] == EventKind.ANNOTATION]
        return annotations[self.context.names.whole_span_annotation[self.events.name[annotations]]]

    # ---- perfkit's own tracks --------------------------------------------------------------------------------------

    def _own_tracks(self) -> Iterator[Track]:
        steps, shown, links = self.steps, self.shown, self.plan.links
        labels = [
            "the whole trace" if (step := steps.number[k]) is None else f"step {numbered(step)}"
            for k in shown.nonzero()[0]
        ]
        yield self._own(STEP_TRACK, Spans(steps.bounds[:-1][shown], steps.bounds[1:][shown], labels))
        yield self._own(CATEGORY_TRACK, exclusive(self.context.activity, steps, shown))
        pipeline = self.context.pipeline_spans and self.context.pipeline_spans.at_stage(self.plan.rank.stage)
        if pipeline is not None:
            yield self._own(PIPELINE_TRACK, pipeline_slices(pipeline, steps, shown))
        modules = self._modules()
        if modules is not None and len(modules.start_ns):
            yield self._own(MODULE_TRACK, modules)
        if self.plan.path:
            yield self._aligned_track(PATH_TRACK, self.plan.path)
        if links:
            yield self._own(WAIT_TRACK, links.waits)
            yield self._own(DELAY_TRACK, links.delays_others)
            if links.dimensions.label:
                yield self._own(DIMENSION_TRACK, links.dimensions)

    def _modules(self) -> Spans | None:
        """Return the shown steps' work by module, and note the module of each event."""
        found = find_module_work(self.context.located, self.device, self.shown)
        if found is None:
            return None
        used = np.unique(found.of_event[found.of_event >= 0])
        label = np.array([self.labels[found.texts[text]] for text in used.tolist()] or [-1], np.int64)
        place = np.minimum(np.searchsorted(used, found.of_event), len(label) - 1)
        self.module = np.where(found.of_event >= 0, label[place], -1)
        return found.spans

    def _loaders(self) -> Iterator[Track]:
        """Yield a track of each worker of the rank's data loaders."""
        header = self.context.header.perfkit
        if header is None or not header.fetches:
            return
        windows = self.steps.bounds[:-1][self.shown], self.steps.bounds[1:][self.shown]
        for worker, (spans, notes) in loader_slices(header.fetches, *windows).items():
            track = self._own(loader_track(worker), spans, notes)
            yield track._replace(argument_name="samples")

    def _own(self, name: str, spans: Spans, notes: Sequence[str | None] = ()) -> Track:
        aligned_spans = Spans(self._aligned(spans.start_ns), self._aligned(spans.end_ns), spans.label)
        return self._aligned_track(name, aligned_spans, notes)

    def _aligned_track(self, name: str, spans: Spans, notes: Sequence[str | None] = ()) -> Track:
        """Return a track of spans that are by the reference clock, with a note for each or none at all."""
        start_ns, end_ns = spans.start_ns, spans.end_ns
        selected = self._select(self._in_range(start_ns) & self._in_range(end_ns), np.ones(len(start_ns), np.bool_))
        none = np.zeros(np.count_nonzero(selected), np.int64)
        return Track(
            name=name,
            start_ns=start_ns[selected],
            end_ns=end_ns[selected],
            label=np.array([self.labels[label] for label in spans.label], np.int64)[selected],
            category=none + len(self.detail.categories),
            launch=none,
            collective=none,
            argument=np.array([-1 if note is None else self.labels[note] for note in notes], np.int64)[selected]
            if notes
            else none - 1,
        )

    def _counters(self) -> Iterator[Counter]:
        if self.plan.links and len(self.plan.links.in_flight[0]):
            time_ns, value = self.plan.links.in_flight
            yield self._counter(IN_FLIGHT, time_ns, value, np.ones(len(time_ns), np.bool_))
        for key, memory in self.context.trace.memory.items():
            shown = _within(memory.time_ns, *self._windows())
            yield self._counter(f"{MEMORY}, {device_name(*key)}", memory.time_ns, memory.allocated_bytes, shown)

    def _counter(self, name: str, time_ns: Ints, value: Ints, wanted: NDArray[np.bool_]) -> Counter:
        aligned_ns = self._aligned(time_ns)
        selected = self._select(self._in_range(aligned_ns), wanted)
        return Counter(name, aligned_ns[selected], value[selected])


def exclusive(activity: Activity, steps: Steps, shown: NDArray[np.bool_]) -> Spans:
    """Split the shown steps' windows into segments of one exclusive category each (metrics.md section 4)."""
    pauses = steps.pauses
    unions = (activity.compute, activity.communication, activity.memcpy, activity.data_loading, pauses.spans)
    cuts = np.unique(np.concatenate([*(edge for spans in unions for edge in spans), steps.bounds]))
    cuts = cuts[(cuts >= steps.bounds[0]) & (cuts <= steps.bounds[-1])]
    start = cuts[:-1]
    # Pauses come first: no category is active in them.
    labels = [*CATEGORIES, *(f"{one.phase or 'between steps'} (not in the step)" for one in pauses.found)]
    begins = np.array([one.start_ns for one in pauses.found], np.int64)
    category = np.full(len(start), len(CATEGORIES) - 1, np.int64)
    for number in reversed(range(len(CATEGORIES) - 1)):
        category[covers(unions[number], start)] = number
    paused = covers(pauses.spans, start)
    category[paused] = len(CATEGORIES) + np.searchsorted(begins, start[paused], side="right") - 1
    step = np.searchsorted(steps.bounds, start, side="right") - 1
    opens = np.flatnonzero(np.diff(category, prepend=-1) | np.diff(step, prepend=-1))
    begin, end = start[opens], np.append(start[opens[1:]], cuts[-1:])
    wanted = shown[step[opens]]
    return Spans(begin[wanted], end[wanted], [labels[number] for number in category[opens][wanted].tolist()])


def _within(instant: Ints, start: Ints, end: Ints) -> NDArray[np.bool_]:
    """Return a mask of the instants within any of the spans, which are in order."""
    return covers(Union(start, np.maximum.accumulate(end)), instant)


def _with_unique_names(tracks: list[Track]) -> Iterator[Track]:
    """Append numbers to repeated track names."""
    seen: Tally[str] = Tally()
    for track in tracks:
        seen[track.name] += 1
        number = seen[track.name]
        yield track if number == 1 else track._replace(name=f"{track.name} [{number}]")
