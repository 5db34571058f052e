"""Build the graph of a trace's steps: its threads, streams and collectives, and what each waited for."""

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from perfkit.engine.communication.blocking_waits import CollectiveSpans, waits_until
from perfkit.engine.idle.host_names import SYNCHRONISING
from perfkit.engine.kinds.classify import data_loading_rows, rows_by_key
from perfkit.engine.step_graph import graph as kinds
from perfkit.engine.step_graph.graph import Edges
from perfkit.engine.step_graph.rank.host_lanes import HostLane
from perfkit.engine.step_graph.rank.rank_graph import RankGraph
from perfkit.engine.step_graph.rank.streams import (
    find_calls,
    free_by_stream,
    in_turn,
    last_before,
    select_work,
    stream_waits,
)
from perfkit.engine.step_graph.rank.table import Table
from perfkit.engine.step_graph.rank.waits import Handovers, find_handovers, find_waits
from perfkit.engine.steps.windows import Steps
from perfkit.trace.events import EventKind, Events
from perfkit.trace.intervals import EMPTY, Ints, Union, difference, distinct, segments_of, split, union

if TYPE_CHECKING:
    from perfkit.engine.trace_context import TraceContext

MOST_EVENTS: Final = 100_000
"""Events of a trace whose graph is built: building takes about a third as long as all other analysis of them."""
_MOST_OF_A_RUN: Final = 4_000_000
"""Events of all ranks, whose graphs are in memory together: about 100 bytes for each."""
_MOST_THREADS: Final = 64
_NONE: Final = np.zeros(0, np.int64)
_LONG_QUEUE: Final = 512
"""Work that was launched and has not ended, from which a launch may wait for room in the device's queue: CUDA's holds
1,024, and records of events and waits for them are among these."""


def build_rank_graph(trace: "TraceContext", most_events: int | None) -> RankGraph:
    """Return the graph of some of a trace's steps.

    Args:
        most_events: of how many events at most; at least one step is included. None for as many as suit the ranks.
    """
    most = most_graph_events(trace.header.world_size) if most_events is None else most_events
    return _Builder(trace, *select_steps(trace.events, trace.steps, most)).build()


def most_graph_events(world_size: int | None) -> int:
    """Return how many events of each of a run's traces the graph has at most."""
    return min(MOST_EVENTS, _MOST_OF_A_RUN // max(world_size or 1, 1))


def select_steps(events: Events, steps: Steps, most_events: int) -> tuple[int, int]:
    """Return the range `[first, last)` of steps around the middle one that together have at most so many events.

    All steps if they are few enough, otherwise an odd number of them: so the ranges of ranks with a little more or less
    events contain each other. Of steps with pauses between them only the longest row without any counts, the first of
    equals, because the graph has no pauses; if all have pauses, that is the first step.
    """
    begin, end = _without_pauses(steps)
    before = np.searchsorted(np.sort(events.start_ns), steps.bounds)
    if before[end] - before[begin] <= most_events:
        return begin, end
    middle = (begin + end) // 2
    first, last = middle, middle + 1
    while first > begin and last < end and before[last + 1] - before[first - 1] <= most_events:
        first, last = first - 1, last + 1
    return first, last


def _without_pauses(steps: Steps) -> tuple[int, int]:
    """Return the range of the longest row of steps without pauses."""
    count = len(steps.number)
    if not steps.pauses.found:
        return 0, count
    cuts = np.concatenate(([-1], np.flatnonzero(steps.paused_ns), [count]))
    row = int(np.argmax(np.diff(cuts)))
    first, last = int(cuts[row]) + 1, int(cuts[row + 1])
    return (first, last) if last > first else (0, 1)


class _Links:
    """Dependencies, collected."""

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, ...]] = [(_NONE,) * 4]

    def add(self, source: Ints, target: Ints, kind: int, least_ns: Ints | int = 0) -> None:
        size = len(source)
        self._parts.append((source, target, np.broadcast_to(least_ns, size), np.full(size, kind)))

    def edges(self) -> Edges:
        source, target, least_ns, kind = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        return Edges(source.astype(np.int32), target.astype(np.int32), least_ns, kind.astype(np.int8))


class _Wait(NamedTuple):
    """Waits of a lane for nodes that end at `until`."""

    lane: HostLane
    until: Ints
    source: Ints
    kind: int


class _Builder:
    """Nodes are numbered: the origin, the device's work, collectives, threads, boundaries of steps."""

    def __init__(self, trace: "TraceContext", first: int, last: int) -> None:
        self.trace, self.first, self.last = trace, first, last
        steps = trace.steps
        self.has_device = trace.has_device
        self.begin = int(steps.host_start_ns[first] if steps.from_annotations else steps.bounds[0])
        self.end = int(steps.bounds[last])
        self.host_end = self._host_end()
        self.loading = data_loading_rows(trace.events, trace.names)
        self.work = select_work(trace.events, trace.device, steps, first, last, self.begin)
        self.links = _Links()
        self.lanes = self._host_lanes()
        self.main = self.lanes[trace.threads.main]
        self.calls = find_calls(
            trace.collectives, self.work if self.has_device else None, first, last, 1 + len(self.work.start)
        )
        self.work = in_turn(self.work)
        self.ended = trace.collectives.end[self.calls.place]
        self.waits: list[_Wait] = []
        self.handovers: list[tuple[HostLane, Handovers]] = []

    def _host_end(self) -> int:
        """Return when the host left the last step."""
        events, steps = self.trace.events, self.trace.steps
        if not steps.from_annotations or not self.has_device:
            return self.end
        if self.last < len(steps.host_start_ns):
            return int(steps.host_start_ns[self.last])
        rows = np.flatnonzero((events.thread == self.trace.threads.main) & (events.kind != EventKind.TOOL))
        latest = int(events.end_ns[rows].max()) if len(rows) else self.end
        return max(self.begin, min(self.end, latest))

    def _host_lanes(self) -> dict[int, HostLane]:
        events, main = self.trace.events, self.trace.threads.main
        rows = events.rows(EventKind.OPERATOR, EventKind.LAUNCH)
        rows = rows[(events.start_ns[rows] < self.end) & (events.end_ns[rows] > self.begin)]
        by_thread = {main: rows[:0]} | rows_by_key(events.thread, rows)
        backend = self._backend_threads()
        by_thread = {thread: own for thread, own in by_thread.items() if thread not in backend}
        most = sorted(by_thread, key=lambda thread: (thread != main, -len(by_thread[thread])))[:_MOST_THREADS]
        return {thread: self._host_lane(thread, by_thread[thread]) for thread in most}

    def _backend_threads(self) -> set[int]:
        """Return the threads of a backend on the CPU, whose work, to copy what was gathered, is a part of transfers.

        gloo's spans of sends and receives are on the thread that issued them.
        """
        if self.has_device:
            return set()
        found = self.trace.collectives
        issued = self.trace.events.thread[found.issue_row[found.issue_row >= 0]]
        return set(found.lane.tolist()) - {self.trace.threads.main, *issued.tolist()}

    def _host_lane(self, thread: int, rows: Ints) -> HostLane:
        events = self.trace.events
        end = self.host_end if thread == self.trace.threads.main else self.end
        found = segments_of(events.start_ns, events.end_ns, rows, self.begin, end)
        if thread != self.trace.threads.main and len(found.end):
            end = int(found.end[-1])
        return HostLane(thread=thread, begin=self.begin, end=end, segments=found)

    def build(self) -> RankGraph:
        work_node = 1 + np.arange(len(self.work.start))
        self._cut_at_steps()
        for thread, rows in self._launches().items():
            self.lanes[thread].cut(self.trace.events.start_ns[self.work.launch_row[rows]])
        self._wait_for_device(work_node)
        self._hand_over()
        self._cut_at_collectives()
        next_node = self.calls.first_node + self.calls.new_nodes
        for lane in self.lanes.values():
            next_node = lane.freeze(next_node)
        boundary = next_node + np.arange(self.last - self.first + 1)
        self._link_device(work_node)
        self._link_host()
        self._link_collectives(boundary)
        self._link_boundaries(boundary, work_node)
        return self._packed(boundary)

    # ---- where threads are cut -------------------------------------------------------------------------------------

    def _cut_at_steps(self) -> None:
        steps = self.trace.steps
        for lane in self.lanes.values():
            lane.mark(steps.bounds[self.first : self.last + 1])
            if lane is not self.main:
                lane.wait(np.array([lane.begin]), lane.segments.start[:1])
        self.main.cut(steps.host_start_ns[self.first : self.last + 1])

    def _launches(self) -> dict[int, Ints]:
        """Return the rows in `Work` that each thread launched."""
        launched = np.flatnonzero(self.work.launch_row >= 0)
        thread = self.trace.events.thread[self.work.launch_row]
        return {key: rows for key, rows in rows_by_key(thread, launched).items() if key in self.lanes}

    def _wait_for_device(self, work_node: Ints) -> None:
        """Let calls that wait for the device wait for the last work that ended before they returned."""
        if not len(work_node):
            return
        events, host = self.trace.events, self.trace.host
        calls = events.rows(EventKind.LAUNCH)
        waits = (host.names.call[events.name[calls]] == SYNCHRONISING) | host.blocking[calls]
        self._add_waits(work_node, calls[waits], kinds.SYNCHRONISATION)
        self._add_waits(work_node, np.setdiff1d(self._delayed_launches(), calls[waits]), kinds.QUEUE)

    def _add_waits(self, work_node: Ints, calls: Ints, kind: int) -> None:
        events = self.trace.events
        begin, end = events.start_ns[calls], events.end_ns[calls]
        last = np.searchsorted(self.work.end, end, side="right") - 1
        launched = np.where(self.work.launch_row >= 0, events.start_ns[self.work.launch_row], np.iinfo(np.int64).min)
        known = (last >= 0) & (self.work.end[last] > begin) & (launched[last] <= begin)
        for thread, at in rows_by_key(events.thread[calls], np.flatnonzero(known)).items():
            if (lane := self.lanes.get(thread)) is not None:
                self._add_wait(lane, begin[at], self.work.end[last[at]], work_node[last[at]], kind)

    def _delayed_launches(self) -> Ints:
        """Return the rows of launches that take longer than others, because much is queued on the device."""
        events, of_launch = self.trace.events, self.work.launch_row >= 0
        rows = np.unique(self.work.launch_row[of_launch])
        begin, took = events.start_ns[rows], events.end_ns[rows] - events.start_ns[rows]
        launched = np.sort(events.start_ns[self.work.launch_row[of_launch]])
        queued = np.searchsorted(launched, begin) - np.searchsorted(np.sort(self.work.end[of_launch]), begin)
        usual_ns = np.median(took[queued < _LONG_QUEUE]) if len(rows) else 0.0
        return rows[(queued >= _LONG_QUEUE) & (took > 2 * usual_ns)]

    def _add_wait(self, lane: HostLane, since: Ints, until: Ints, source: Ints, kind: int) -> None:
        inside = (until > lane.begin) & (until <= lane.end)
        lane.wait(since, until)
        self.waits.append(_Wait(lane, until[inside], source[inside], kind))

    def _hand_over(self) -> None:
        for lane in self.lanes.values():
            if lane is self.main:
                continue
            found = find_handovers(self.main, lane)
            self.main.mark(found.paused)
            self.main.wait(found.paused, found.ended)
            lane.wait(found.idle_since, found.begun)
            lane.cut(found.ended)
            self.handovers.append((lane, found))

    def _cut_at_collectives(self) -> None:
        """Cut threads where they issue collectives; without a device, find where the main thread waits for one."""
        if self.has_device:
            return
        calls, collectives = self.calls, self.trace.collectives
        for thread, rows in self._issued_by().items():
            self.lanes[thread].cut(collectives.issued[calls.place[rows]])
        waits = find_waits(self._pauses(self._main_issues()), collectives, calls.place)
        self.ended = waits.ended
        self._add_wait(
            self.main, waits.since, waits.ended[waits.row], calls.nodes.transfer[waits.row], kinds.COMPLETION
        )

    def _pauses(self, issues: Ints) -> Union:
        """Return where the main thread runs no operator but those that communicate, cut where it issues another one.

        What issues a collective no longer waits for the one before.
        """
        if self.main.end <= self.main.begin:
            return EMPTY
        whole = Union(np.array([self.main.begin]), np.array([self.main.end]))
        return split(difference(whole, self._computing()), issues)

    def _computing(self) -> Union:
        """Return where the main thread runs operators that do not communicate, or wait in them for a collective."""
        seg, events = self.main.segments, self.trace.events
        communicates = self.trace.names.communication_operator[events.name[seg.owner]]
        found = self.trace.collectives
        by_end = np.argsort(found.end, kind="stable")
        spans = CollectiveSpans(found.start[by_end], found.end[by_end])
        follows = seg.end[:-1] == seg.start[1:]
        start = waits_until(seg, follows, communicates, events.start_ns[seg.owner], events.end_ns[seg.owner], spans)
        return union(start[~communicates], seg.end[~communicates])

    def _main_issues(self) -> Ints:
        """Return when the main thread issued collectives, where that was recorded."""
        collectives, place = self.trace.collectives, self.calls.place
        row = collectives.issue_row[place]
        of_main = (row >= 0) & (self.trace.events.thread[row] == self.main.thread)
        return np.asarray(collectives.issued[place[of_main]])

    def _issued_by(self) -> dict[int, Ints]:
        """Return the collectives that each thread issued; those of unknown issue are the main thread's."""
        row = self.trace.collectives.issue_row[self.calls.place]
        thread = np.where(row >= 0, self.trace.events.thread[row], self.main.thread)
        return {key: rows for key, rows in rows_by_key(thread, np.arange(len(row))).items() if key in self.lanes}

    # ---- dependencies ----------------------------------------------------------------------------------------------

    def _link_device(self, work_node: Ints) -> None:
        work, events = self.work, self.trace.events
        entry = work_node.copy()
        if self.has_device:
            entry[self.calls.work] = self.calls.nodes.joined
            self.links.add(self.calls.nodes.joined, self.calls.nodes.transfer, kinds.ORDER)
        before = last_before(work.stream, work.start, work.end)
        unlaunched = self.trace.device.launch_row[work.place] < 0
        ordered = ~unlaunched[before.target]
        self.links.add(work_node[before.source[ordered]], entry[before.target[ordered]], kinds.ORDER)
        # Whatever the work of unknown launch waited for: of all that ended before, the last explains most.
        ended = last_before(np.zeros_like(work.stream), work.start, work.end)
        of = unlaunched[ended.target]
        self.links.add(work_node[ended.source[of]], entry[ended.target[of]], kinds.UNLAUNCHED)
        waits = stream_waits(events, work, before)
        self.links.add(work_node[waits.source], entry[waits.target], kinds.STREAM_WAIT)
        free_ns = free_by_stream(work, before)
        np.maximum.at(free_ns, waits.target, work.end[waits.source])
        parts = []
        for thread, rows in self._launches().items():
            at = events.start_ns[work.launch_row[rows]]
            rows, at = rows[self.lanes[thread].contains(at)], at[self.lanes[thread].contains(at)]
            parts.append((rows, at, self.lanes[thread].ending_at(at)))
        if not parts:
            return
        rows, at, source = (np.concatenate(column) for column in zip(*parts, strict=True))
        took = work.start[rows] - at
        prompt = took[(at >= free_ns[rows]) & (took >= 0)]
        self.links.add(source, entry[rows], kinds.LAUNCH, int(np.median(prompt)) if len(prompt) else 0)

    def _link_host(self) -> None:
        for lane in self.lanes.values():
            nodes = lane.first_node + np.arange(len(lane.bounds) - 1)
            self.links.add(np.append(kinds.ORIGIN, nodes[:-1])[: len(nodes)], nodes, kinds.ORDER)
        for wait in self.waits:
            self.links.add(wait.source, wait.lane.ending_at(wait.until), wait.kind)
        for lane, found in self.handovers:
            begun = found.begun > lane.begin
            target = lane.ending_at(found.begun[begun])
            self.links.add(self.main.ending_at(found.paused[begun]), target, kinds.HANDOVER)
            self.links.add(lane.ending_at(found.ended), self.main.ending_at(found.ended), kinds.HANDOVER)

    def _link_collectives(self, boundary: Ints) -> None:
        if self.has_device:
            return
        calls, collectives = self.calls, self.trace.collectives
        self.links.add(calls.nodes.joined, calls.nodes.transfer, kinds.ORDER)
        before = last_before(collectives.lane[calls.place], collectives.start[calls.place], self.ended)
        self.links.add(calls.nodes.transfer[before.source], calls.nodes.joined[before.target], kinds.ORDER)
        for thread, rows in self._issued_by().items():
            lane, at = self.lanes[thread], collectives.issued[calls.place[rows]]
            inside = lane.contains(at)
            self.links.add(lane.ending_at(at[inside]), calls.nodes.joined[rows[inside]], kinds.ISSUE)
        self._await_the_rest(boundary)

    def _await_the_rest(self, boundary: Ints) -> None:
        """A collective that no wait is seen for is done by the next wait for one, or by the end of its step."""
        calls, steps = self.calls, self.trace.steps
        ended = self.ended
        waits = [wait.until for wait in self.waits if wait.kind == kinds.COMPLETION and wait.lane is self.main]
        until = distinct(np.concatenate([_NONE, *waits]))
        bounds = steps.bounds[self.first : self.last + 1]
        step = np.minimum(np.searchsorted(bounds, ended), len(bounds) - 1)
        following = np.append(until, np.iinfo(np.int64).max)[np.searchsorted(until, ended)]
        in_time, waited = ended <= bounds[step], following <= bounds[step]
        self.links.add(calls.nodes.transfer[waited], self.main.ending_at(following[waited]), kinds.COMPLETION)
        rest = in_time & ~waited
        self.links.add(calls.nodes.transfer[rest], boundary[step[rest]], kinds.END)

    def _link_boundaries(self, boundary: Ints, work_node: Ints) -> None:
        bounds = self.trace.steps.bounds[self.first : self.last + 1]
        host = np.append(self.trace.steps.host_start_ns[self.first : self.last], self.host_end)
        host = np.clip(host, self.begin, self.host_end)
        self.links.add(self.main.ending_at(host), boundary, kinds.END)
        last = np.searchsorted(self.work.end, bounds, side="right") - 1
        some = last >= 0
        self.links.add(work_node[last[some]], boundary[some], kinds.END)

    # ---- columns ---------------------------------------------------------------------------------------------------

    def _packed(self, boundary: Ints) -> RankGraph:
        table = Table(self.trace, self.first, self.last, self.begin)
        table.add_work(self.work, self.calls)
        table.add_calls(self.calls, self.ended)
        for number, lane in enumerate(self.lanes.values()):
            table.add_lane(lane, self.loading, f"thread {number + 1}" if number else "main thread")
        table.add_boundaries(self.trace.steps.bounds[self.first : self.last + 1])
        return table.graph(self.links.edges(), boundary, self.calls.nodes)
