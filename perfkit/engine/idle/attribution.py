"""Give each piece of a rank's idle time its cause (metrics.md section 14).

On a device, what it waited for is the work of the thread that launched the next kernel; where that kernel had already
been launched, the device itself. Without a device, it is the work of the thread that trains.
"""

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.breakdown import Activity
from perfkit.engine.idle import pieces as causes
from perfkit.engine.idle.host_names import host_names
from perfkit.engine.idle.host_thread import Host, explain, spans_of_rows
from perfkit.engine.idle.pieces import Pieces, Texts, fixed_pieces
from perfkit.engine.idle.python_stack import FrameNames
from perfkit.engine.kinds.classify import Device, matching, rows_by_key
from perfkit.engine.steps.marks import step_names, training_thread
from perfkit.engine.steps.windows import Steps
from perfkit.trace.events import EventKind, Events, PythonFrames
from perfkit.trace.intervals import Ints, Nesting, Union, complement, concatenated, merge, rows_of, split

if TYPE_CHECKING:
    from perfkit.engine.trace_context import TraceContext

_ASYNCHRONOUS: Final = re.compile(r"Memset|.*(fillBuffer|Pinned|DtoD|DeviceToDevice|D2D|PtoP)")
"""Copies that no call waits for, though it may last until they are done by chance: on an idle device they are short."""
LATENCY_NS: Final = 20_000
"""A kernel that starts later than this after its launch call waited for something; on an idle device it takes 1 to 8 us
(NVIDIA 1 to 3, AMD 3 to 8)."""
QUEUE_NS: Final = 100_000
"""The device goes on with queued work within 1 to 20 us; longer than this, it waited for something."""

_HOST_KINDS: Final = (EventKind.LAUNCH, EventKind.OPERATOR, EventKind.ANNOTATION)


def find_gaps(activity: Activity, steps: Steps) -> Union:
    """Return the idle spans of the steps (`overhead`), cut at the bounds of steps."""
    busy = merge(activity.compute, activity.communication, activity.memcpy, activity.data_loading, steps.pauses.spans)
    first, last = steps.bounds[[0, -1]].tolist()
    return split(complement(busy, first, last), steps.bounds)


def attribute(device: Device, gaps: Union, host: Host, threads: "Threads") -> Pieces:
    """Return the pieces of all gaps, in order of time; they cover the gaps."""
    if not len(device.row):
        return threads.explain(host, threads.main, gaps)
    waiting = _next_work(host.events, device, gaps)
    parts = [*_on_device(host, device, gaps, waiting), _on_host(host, threads, gaps, waiting)]
    found = concatenated(parts)
    return rows_of(found, np.argsort(found.start, kind="stable"))


def host_time(trace: "TraceContext") -> tuple[Host, "Threads"]:
    """Return what is needed to explain any time of the host's threads."""
    events, frames, samples = trace.events, trace.trace.frames, trace.samples
    if samples is not None and not len(frames.name):
        frames = replace(frames, names=samples.names)
    host = _host(events, frames, trace)
    return host, Threads(events, frames, training_thread(events, trace.step_marker), is_light=trace.is_light)


def _host(events: Events, frames: PythonFrames, trace: "TraceContext") -> Host:
    device, annotations = trace.device, events.rows(EventKind.ANNOTATION)
    is_step = step_names(events, annotations, trace.step_marker)
    names = host_names(events, trace.names, is_step)
    own_steps = spans_of_rows(events, annotations[is_step[events.name[annotations]] & (trace.step_marker is None)])
    launched = np.zeros(len(events.kind), np.bool_)
    launched[device.launch_row[device.launch_row >= 0]] = True
    launches = np.flatnonzero(launched)
    launches = launches[np.argsort(events.start_ns[launches], kind="stable")]
    names_of_copies = np.zeros(len(events.names), np.bool_)
    names_of_copies[events.name[device.row[device.is_copy]]] = True
    asynchronous = matching(events, names_of_copies, _ASYNCHRONOUS)
    copies = device.is_copy & (device.launch_row >= 0) & ~asynchronous[events.name[device.row]]
    blocking = np.zeros(len(events.kind), np.bool_)
    blocking[device.launch_row[copies]] = events.end_ns[device.launch_row[copies]] >= events.end_ns[device.row[copies]]
    tools = events.rows(EventKind.TOOL)
    return Host(
        events=events,
        names=names,
        frames=frames,
        frame_names=FrameNames(frames.names),
        texts=Texts(events, frames),
        blocking=blocking,
        launches=Union(events.start_ns[launches], events.end_ns[launches]),
        profiling=spans_of_rows(events, tools[names.profiling_tool[events.name[tools]]]),
        compiling=spans_of_rows(events, tools[names.compiling_tool[events.name[tools]]]),
        stepless=Union(own_steps.end[:-1], own_steps.start[1:]),
        samples=trace.samples,
    )


class Threads:
    """The host's events by thread."""

    def __init__(self, events: Events, frames: PythonFrames, main: int, *, is_light: bool = False) -> None:
        self.main = main
        self._is_light = is_light
        self._rows = rows_by_key(events.thread, events.rows(*_HOST_KINDS))
        self._frames = rows_by_key(frames.thread)

    def rows(self, events: Events, thread: int, *kinds: EventKind) -> Ints:
        """Return a thread's events of some kinds."""
        rows = self._rows.get(thread, np.zeros(0, np.int64))
        return rows[events.is_of(*kinds, rows=rows)]

    def explain(self, host: Host, thread: int, spans: Union) -> Pieces:
        """Return the pieces of spans by what a thread did in them."""
        none = np.zeros(0, np.int64)
        if self._is_light:  # what it did is not in the trace, and an annotation around it is no cause
            nothing = np.full(len(spans.start), causes.NOTHING_RECORDED)
            return fixed_pieces(*spans, causes.INDEX["unknown"], nothing)
        samples = host.by_samples if thread == self.main else None
        return explain(host, self._rows.get(thread, none), self._frames.get(thread, none), spans, samples)


class _Waiting(NamedTuple):
    """What the device did after each gap; columns of shape (g,)."""

    activity: Ints
    """Place of the next activity in `Device`; -1 if none follows."""
    thread: Ints
    """Thread that launched it; -1 if no launch was recorded."""
    launched_ns: Ints
    """End of that launch, between the gap's start and end: until then, the host kept the device waiting."""
    arriving_ns: Ints
    """From `launched_ns` to here, it was on its way to the device."""


def _next_work(events: Events, device: Device, gaps: Union) -> _Waiting:
    start_ns = events.start_ns[device.row]
    order = np.lexsort((device.launched_ns, start_ns))
    order = order[(events.end_ns[device.row] > start_ns)[order]]
    following = np.searchsorted(start_ns[order], gaps.end)
    activity = np.append(order, -1)[following]
    launch = np.where(activity >= 0, device.launch_row[activity], -1)
    ended_ns = np.where(launch >= 0, events.end_ns[launch], gaps.end)
    launched_ns = np.clip(ended_ns, gaps.start, gaps.end)
    return _Waiting(
        activity=activity,
        thread=np.where(launch >= 0, events.thread[launch], -1).astype(np.int64),
        launched_ns=launched_ns,
        arriving_ns=np.clip(ended_ns + LATENCY_NS, launched_ns, gaps.end),
    )


def _on_device(host: Host, device: Device, gaps: Union, waiting: _Waiting) -> list[Pieces]:
    """Return the pieces in which the next work had been launched, and those before work without a launch."""
    arrives = waiting.arriving_ns > waiting.launched_ns
    queued = gaps.end > waiting.arriving_ns
    arriving = fixed_pieces(
        waiting.launched_ns[arrives],
        waiting.arriving_ns[arrives],
        causes.INDEX["launch_bound"],
        np.full(int(arrives.sum()), causes.LAUNCH_LATENCY),
    )
    detail = _queue(host, device, gaps, waiting, queued)
    in_queue = fixed_pieces(waiting.arriving_ns[queued], gaps.end[queued], causes.INDEX["dependency"], detail)
    lost = (waiting.activity >= 0) & (waiting.thread < 0)
    unknown = fixed_pieces(
        gaps.start[lost], gaps.end[lost], causes.INDEX["unknown"], np.full(int(lost.sum()), causes.NO_LAUNCH)
    )
    return [arriving, in_queue, unknown]


def _queue(host: Host, device: Device, gaps: Union, waiting: _Waiting, queued: NDArray[np.bool_]) -> Ints:
    """Return what queued work waited for: a graph, its own stream, or another one."""
    events, gap_start, activity = host.events, gaps.start[queued], waiting.activity[queued]
    launch = device.launch_row[activity]
    in_graph = host.names.launches_graph[events.name[launch]]
    # Nothing else runs on the device in a gap: what takes longer than going on is not in the trace.
    long = gaps.end[queued] - waiting.arriving_ns[queued] >= QUEUE_NS
    ended = device.row[np.argsort(events.end_ns[device.row], kind="stable")]
    before = np.searchsorted(events.end_ns[ended], gap_start, side="right") - 1
    stream = events.thread[device.row[activity]]
    same = (before < 0) | (events.thread[ended[before]] == stream)
    details = [causes.IN_GRAPH, causes.QUEUED_FOR_NOTHING, causes.SAME_STREAM]
    return np.select([in_graph, long, same], details, causes.OTHER_STREAM)


def _on_host(host: Host, threads: Threads, gaps: Union, waiting: _Waiting) -> Pieces:
    """Return the pieces before the next work was launched, by what the launching thread did."""
    thread = np.where(waiting.activity >= 0, waiting.thread, threads.main)
    late = (waiting.launched_ns > gaps.start) & ((thread >= 0) | (waiting.activity < 0))
    parts = [causes.EMPTY]
    for number, places in rows_by_key(thread, np.flatnonzero(late)).items():
        spans = Union(gaps.start[places], waiting.launched_ns[places])
        found = threads.explain(host, number, spans)
        parts.extend(_or_main_thread(host, threads, number, found))
    return concatenated(parts)


def _or_main_thread(host: Host, threads: Threads, thread: int, found: Pieces) -> list[Pieces]:
    """Return the pieces, with those in which the thread did nothing by what the main thread did.

    Autograd's threads launch the backward pass, and do nothing until the main thread calls it.
    """
    idle: NDArray[np.bool_] = found.cause == causes.INDEX["unknown"]
    if thread == threads.main or not idle.any():
        return [found]
    by_main = threads.explain(host, threads.main, Union(found.start[idle], found.end[idle]))
    return [rows_of(found, ~idle), _where_main_waits(host, threads, thread, by_main)]


def _where_main_waits(host: Host, threads: Threads, thread: int, found: Pieces) -> Pieces:
    """Return the main thread's pieces; unknown those of an annotation in which the launching thread has worked since.

    In the middle of a backward pass the main thread waits for autograd's: the annotation around the pass does not tell
    what keeps that thread from the next operator.
    """
    events = host.events
    annotations = threads.rows(events, threads.main, EventKind.ANNOTATION)
    annotations = annotations[host.names.context[events.name[annotations]]]
    worked_ns = np.sort(events.start_ns[threads.rows(events, thread, EventKind.OPERATOR, EventKind.LAUNCH)])
    if not len(annotations) or not len(worked_ns):
        return found
    place = Nesting(events.start_ns[annotations], events.end_ns[annotations]).at(found.start)
    around = annotations[place]
    last = np.searchsorted(worked_ns, found.start, side="right") - 1
    since = (last >= 0) & (worked_ns[last] > events.start_ns[around])
    name = np.where(place >= 0, host.texts.of_event_name(events.name[around].astype(np.int64)), -1)
    silent = (found.cause == causes.INDEX["host_work"]) & (place >= 0) & (found.detail == name) & since
    return found._replace(
        cause=np.where(silent, causes.INDEX["unknown"], found.cause).astype(np.int8),
        detail=np.where(silent, causes.SILENT_THREAD, found.detail),
        context=np.where(silent, name, found.context),
    )
