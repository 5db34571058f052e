"""Collect the nodes of one trace's graph and what they consist of, as columns."""

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.attribution.call_paths import PathTable
from perfkit.engine.attribution.views import LABELS, CallSites, Located
from perfkit.engine.idle.pieces import Pieces as IdlePieces
from perfkit.engine.kinds.classify import in_compilation, innermost_at_launch, rows_by_key
from perfkit.engine.step_graph import graph as kinds
from perfkit.engine.step_graph.graph import Edges, Nodes, Parts
from perfkit.engine.step_graph.modules import NO_MODULE, GraphModule
from perfkit.engine.step_graph.rank.host_lanes import HostLane, Pieces, pieces_of
from perfkit.engine.step_graph.rank.rank_graph import CollectiveNodes, RankGraph, packed
from perfkit.engine.step_graph.rank.streams import Calls, Work
from perfkit.records.rank import UNKNOWN_OPERATOR
from perfkit.trace.events import MODULE, EventKind
from perfkit.trace.intervals import EMPTY, Ints, Union, combinations, covers, distinct, segments_of, split, union

if TYPE_CHECKING:
    from perfkit.engine.trace_context import TraceContext

_JOIN, _WORK, _HOST, _MAIN, _BOUNDARY = range(5)
"""Order of points at one instant: the main thread goes on when another thread has ended, so it comes after it."""
_NONE: Final = np.zeros(0, np.int64)
_COMPILATION: Final = kinds.KINDS.index("compilation")
_LAUNCH_BOUND: Final = kinds.KINDS.index("launch_bound")


class ModuleOwners:
    """Calls of modules, within each other: what parts of the graph belong to (metrics.md section 20)."""

    def __init__(self, located: Located) -> None:
        self._located = located
        self._table = PathTable()
        frames, chosen = located.frames, located.frames.module_rows
        self._bounds = {
            thread: distinct(np.concatenate((frames.start_ns[rows], frames.end_ns[rows])))
            for thread, rows in rows_by_key(frames.thread, chosen).items()
        }

    def bounds(self, thread: int) -> Ints:
        """Return when calls of modules begin or end on a thread, in order."""
        return self._bounds.get(thread, np.zeros(0, np.int64))

    def of(self, thread: Ints, instant: Ints) -> Ints:
        """Return what runs at instants on threads belongs to: indices into `modules()`, or `NO_MODULE`.

        A trace without calls of modules has none.
        """
        if not self._bounds:
            return np.full(len(thread), NO_MODULE, np.int64)
        located = self._located
        sites = CallSites(located.events, located.phases, thread, instant)
        return sites.paths(located.module_spans, self._table, len(located.frames.names)) - 1

    def modules(self) -> list[GraphModule]:
        """Return the modules that `of` has found, each after the one that called it."""
        frames = self._located.frames
        instances = [name.removeprefix(MODULE) for name in frames.names] + list(LABELS)
        rows = zip(self._table.parent[1:].tolist(), self._table.name[1:].tolist(), strict=True)
        return [
            GraphModule(parent - 1, instances[name], frames.modules.get(instances[name], ())) for parent, name in rows
        ]


class Table:
    """Nodes in order of their numbers, and their parts.

    Args:
        last: the step after the last.
        begin: the instant of the origin.
    """

    def __init__(self, trace: "TraceContext", first: int, last: int, begin: int) -> None:
        self.trace, self.first, self.last = trace, first, last
        self._owners = ModuleOwners(trace.located)
        self.lanes: list[str] = []
        self.lane_devices: dict[int, int] = {}
        self._extra: dict[str, int] = {}
        self._dimensions: dict[str, int] = {}
        self._scopes: dict[tuple[str, ...], int] = {}
        self._columns: list[tuple[Ints, ...]] = []
        self._parts: list[tuple[Ints, ...]] = [(_NONE,) * 7]
        self._count = 0
        self._add(np.array([begin]), np.array([begin]), kinds.POINT, tie=0)

    def _add(
        self,
        start: Ints,
        end: Ints,
        kind: Ints | int,
        *,
        tie: int,
        lane: Ints | int = -1,
        step: Ints | int = 0,
        name: Ints | int = -1,
        dimension: Ints | int = -1,
        size: Ints | int = -1,
    ) -> Ints:
        """Add nodes, and return their numbers."""
        rest = (lane, step, kind, name, dimension, size, tie)
        self._columns.append((start, end, *(np.broadcast_to(column, len(start)) for column in rest)))
        self._count += len(start)
        return np.arange(self._count - len(start), self._count)

    def _lane(self, label: str) -> int:
        self.lanes.append(label)
        return len(self.lanes) - 1

    def _step_at(self, instant: Ints) -> Ints:
        bounds = self.trace.steps.bounds[self.first : self.last + 1]
        return np.clip(np.searchsorted(bounds, instant, side="right") - 1, 0, self.last - self.first - 1)

    def _name_of(self, text: str) -> int:
        """Return the number of a text that is not among the trace's."""
        return len(self.trace.host.texts) + self._extra.setdefault(text, len(self._extra))

    # ---- nodes -----------------------------------------------------------------------------------------------------

    def add_work(self, work: Work, calls: Calls) -> None:
        """Add the device's work; collectives are named by their operator where it is known."""
        device, events = self.trace.device, self.trace.events
        streams, place = np.unique(work.stream, return_inverse=True)
        lane = np.array([self._lane(f"stream {number}") for number in range(1, len(streams) + 1)] or [0])[place]
        self.lane_devices = dict(zip(lane.tolist(), device.number[work.place].tolist(), strict=True))
        copies, communicates = device.is_copy[work.place], device.is_communication[work.place]
        kind = np.select([copies, communicates], [kinds.MEMCPY, kinds.COMMUNICATION], kinds.COMPUTE)
        name = self.trace.host.texts.of_event_name(events.name[device.row[work.place]].astype(np.int64))
        dimension, size = np.full(len(kind), -1), np.full(len(kind), -1)
        if self.trace.has_device:
            own, dimension[calls.work], size[calls.work] = self._described(calls)
            name[calls.work] = np.where(own >= 0, own, name[calls.work])
        step = np.clip(self.trace.steps.device_step[work.place] - self.first, 0, None)
        by = np.where(kind == kinds.COMMUNICATION, name, self._launched_by(work))
        node = self._add(
            work.start, work.end, kind, tie=_WORK, lane=lane, step=step, name=by, dimension=dimension, size=size
        )
        launch = work.launch_row
        thread = np.where(launch >= 0, events.thread[launch], -1).astype(np.int64)
        self._add_parts(node, kind, name, work.end - work.start, thread, device.launched_ns[work.place])

    def _launched_by(self, work: Work) -> Ints:
        """Return the operator that launched each activity, the innermost of the launching thread; -1 if none did."""
        events = self.trace.events
        row = innermost_at_launch(events, work.launch_row, np.asarray(events.kind == EventKind.OPERATOR))
        name = np.full(len(row), -1, np.int64)
        name[row >= 0] = self.trace.host.texts.of_event_name(events.name[row[row >= 0]].astype(np.int64))
        return name

    def _described(self, calls: Calls) -> tuple[Ints, Ints, Ints]:
        """Return operator, dimension and size of each collective: indices, or -1."""
        found = self.trace.collectives
        table = [
            (
                self._name_of(kind.operator) if kind.operator != UNKNOWN_OPERATOR else -1,
                -1 if kind.dimension is None else self._dimensions.setdefault(kind.dimension, len(self._dimensions)),
                -1 if kind.bytes is None else kind.bytes,
            )
            for kind in found.kinds
        ]
        columns = np.array(table or [(-1, -1, -1)], np.int64)[found.kind[calls.place]]
        return columns[:, 0], columns[:, 1], columns[:, 2]

    def add_calls(self, calls: Calls, end: Ints) -> None:
        """Add the points at which collectives are joined and, without a device, the transfers, until `end`."""
        found, on_device = self.trace.collectives, self.trace.has_device
        if on_device:
            start, _, lane, *_ = (column[calls.work] for column in self._columns[1])
        else:
            start = found.start[calls.place]
            threads, place = np.unique(found.lane[calls.place], return_inverse=True)
            labels = [self._lane(f"communication {number}") for number in range(1, len(threads) + 1)]
            lane = np.array(labels or [0])[place]
        name, dimension, size = self._described(calls)
        described = {"lane": lane, "name": name, "dimension": dimension, "size": size}
        step = found.step[calls.place] - self.first
        self._add(start, start, kinds.POINT, tie=_JOIN, step=step, **described)
        if not on_device:
            node = self._add(start, end, kinds.COMMUNICATION, tie=_WORK, step=step, **described)
            issue, events = found.issue_row[calls.place], self.trace.events
            thread = np.where(issue >= 0, events.thread[issue], -1).astype(np.int64)
            issued = np.where(issue >= 0, events.start_ns[issue], found.issued[calls.place])
            self._add_parts(node, np.full(len(node), kinds.COMMUNICATION), name, end - start, thread, issued)

    def add_lane(self, lane: HostLane, loading: Ints, label: str) -> None:
        """Add a thread.

        Args:
            loading: rows of the data-loading annotations of all threads.
            label: what to call it.
        """
        start, end = lane.spans
        kind = np.where(end > start, kinds.HOST, kinds.POINT)
        tie = _MAIN if lane.thread == self.trace.threads.main else _HOST
        self._add(start, end, kind, tie=tie, lane=self._lane(label), step=self._step_at(start))
        events = self.trace.events
        loading = loading[events.thread[loading] == lane.thread]
        loader = segments_of(events.start_ns, events.end_ns, loading, lane.begin, lane.end)
        waits = self.trace.waits.on(lane.thread)
        cuts = (loader.start, loader.end, *waits, self._owners.bounds(lane.thread))
        pieces = pieces_of(lane, np.concatenate(cuts))
        pieces = pieces._replace(row=np.where(covers(waits, pieces.start), -1, pieces.row))
        loads = covers(Union(loader.start, loader.end), pieces.start)
        self._add_running(lane, pieces, loads)
        idle = pieces.row < 0
        chosen = idle & loads
        inner = loader.owner[np.searchsorted(loader.start, pieces.start[chosen], side="right") - 1]
        name = self.trace.host.texts.of_event_name(events.name[inner].astype(np.int64))
        of_kind = np.full(len(inner), kinds.DATA_LOADING)
        self._add_host_parts(lane, pieces.node[chosen], of_kind, name, Union(pieces.start[chosen], pieces.end[chosen]))
        rest = idle & ~loads
        self._add_idle(lane, _joined(pieces, rest))

    def _add_running(self, lane: HostLane, pieces: Pieces, loads: NDArray[np.bool_]) -> None:
        """Add the parts in which operators and calls run."""
        events, names = self.trace.events, self.trace.names
        runs = pieces.row >= 0
        row = pieces.row[runs]
        name = self.trace.host.texts.of_event_name(events.name[row].astype(np.int64))
        spans = Union(pieces.start[runs], pieces.end[runs])
        if self.trace.has_device:
            self._add_beside_device(lane, pieces.node[runs], name, spans, loads[runs])
            return
        communicates, compiles = names.communication_operator[events.name[row]], in_compilation(events, names, row)
        special = [loads[runs], communicates, compiles]
        kind = np.select(special, [kinds.DATA_LOADING, kinds.COMMUNICATION, _COMPILATION], kinds.COMPUTE)
        self._add_host_parts(lane, pieces.node[runs], kind, name, spans)

    def _add_beside_device(
        self, lane: HostLane, node: Ints, name: Ints, spans: Union, loads: NDArray[np.bool_]
    ) -> None:
        """Add operators and calls by what idle time meanwhile is due to: those that issue work are the host's."""
        found = self.trace.threads.explain(self.trace.host, lane.thread, spans)
        own = np.searchsorted(spans.start, found.start, side="right") - 1
        cause = found.cause.astype(np.int64) + kinds.FIRST_CAUSE
        kind = np.select([loads[own], cause == _LAUNCH_BOUND], [kinds.DATA_LOADING, kinds.HOST], cause)
        self._add_host_parts(lane, node[own], kind, name[own], Union(found.start, found.end))

    def _add_idle(self, lane: HostLane, spans: Union) -> None:
        """Add the parts between operators and calls by cause, and by what ran."""
        found = self.trace.threads.explain(self.trace.host, lane.thread, spans)
        edges = (self._owners.bounds(lane.thread), *self._communicating)
        cut = split(Union(found.start, found.end), np.concatenate(edges))
        own = np.searchsorted(found.start, cut.start, side="right") - 1
        node = lane.first_node + np.searchsorted(lane.bounds, cut.start, side="right") - 1
        cause = found.cause[own].astype(np.int64) + kinds.FIRST_CAUSE
        # A step counts as communication what no function is known to run in meanwhile.
        during = covers(self._communicating, cut.start) & ~self.trace.host.texts.is_function(found.detail)[own]
        cause[during] = kinds.COMMUNICATION
        name, scope = self._names_of(found)
        self._add_host_parts(lane, node, cause, name[own], cut, scope[own])

    @cached_property
    def _communicating(self) -> Union:
        """When collectives of a backend on the CPU run."""
        found = self.trace.collectives
        return EMPTY if self.trace.has_device else union(found.start, found.end)

    def _names_of(self, found: IdlePieces) -> tuple[Ints, Ints]:
        """Return the name and the scope of each piece of idle time."""
        texts, none = self.trace.host.texts, np.int64(-1)
        is_own = self.trace.host.own_text
        by_caller = texts.is_function(found.detail) & ~is_own[found.detail] & is_own[found.context]
        name = np.where(by_caller, found.context, found.detail)
        called = np.where(by_caller, found.detail, none)
        around = np.where(found.annotation == name, none, found.annotation)
        pairs, place = combinations(np.stack((called, around)))
        scopes = [tuple(text for number in pair if (text := texts.text(number))) for pair in pairs.T.tolist()]
        numbers = [self._scopes.setdefault(scope, len(self._scopes)) if scope else -1 for scope in scopes]
        return name, np.array(numbers, np.int64)[place]

    def add_boundaries(self, instants: Ints) -> None:
        """Add the points at which steps begin and the last one ends."""
        self._add(instants, instants, kinds.POINT, tie=_BOUNDARY, step=self._step_at(instants))

    def _add_host_parts(
        self, lane: HostLane, node: Ints, kind: Ints, name: Ints, spans: Union, scope: Ints | int = -1
    ) -> None:
        thread = np.full(len(node), lane.thread, np.int64)
        self._add_parts(node, kind, name, spans.end - spans.start, thread, spans.start, scope)

    def _add_parts(
        self,
        node: Ints,
        kind: Ints,
        name: Ints,
        length: Ints,
        thread: Ints,
        instant: Ints,
        scope: Ints | int = -1,
    ) -> None:
        """Add parts, and where the host did or issued them."""
        self._parts.append((node, kind, name, length, thread, instant, np.broadcast_to(scope, len(node))))

    # ---- columns ---------------------------------------------------------------------------------------------------

    def graph(self, edges: Edges, boundary: Ints, collectives: CollectiveNodes) -> RankGraph:
        columns = [np.concatenate(column) for column in zip(*self._columns, strict=True)]
        start, end, lane, step, kind, name, dimension, size, tie = columns
        node, of_kind, of_name, length, *at, scope = map(np.concatenate, zip(*self._parts, strict=True))
        parts = add_up(node, of_kind, of_name, length, self._owners.of(*at), scope)
        used = np.zeros(len(self.trace.host.texts) + len(self._extra) + 1, np.bool_)
        used[name], used[parts.name] = True, True
        used[-1] = False  # where -1, no name, points to
        place = np.append(np.cumsum(used[:-1]) - 1, -1)
        nodes = Nodes(start, end, np.zeros_like(kind), lane, step, kind, place[name], dimension, size)
        parts = parts._replace(name=place[parts.name].astype(np.int32))
        texts, extra, numbers = self.trace.host.texts, list(self._extra), np.flatnonzero(used)
        first = np.searchsorted(numbers, len(texts))
        return RankGraph(
            steps=self.trace.steps.number[self.first : self.last],
            names=[*texts.all_of(numbers[:first]), *(extra[n - len(texts)] for n in numbers[first:].tolist())],
            scopes=list(self._scopes),
            dimensions=list(self._dimensions),
            lanes=self.lanes,
            lane_devices=[self.lane_devices.get(lane, -1) for lane in range(len(self.lanes))],
            boundaries=boundary.tolist(),
            tables=packed(nodes, edges, parts, collectives, (tie,)),
            modules=self._owners.modules(),
        )


def _joined(pieces: Pieces, chosen: NDArray[np.bool_]) -> Union:
    """Return the spans of some pieces; those of one node that touch are one: only a module's call cuts them."""
    rows = np.flatnonzero(chosen)
    start, end, node = pieces.start[rows], pieces.end[rows], pieces.node[rows]
    opens = np.ones(len(rows), np.bool_)
    opens[1:] = (start[1:] != end[:-1]) | (node[1:] != node[:-1])
    closes = np.append(opens[1:], np.ones(min(len(rows), 1), np.bool_))
    return Union(start[opens], end[closes])


def add_up(node: Ints, kind: Ints, name: Ints, length: Ints, module: Ints, scope: Ints) -> Parts:
    """Sum the parts of one node, kind, name, module and scope; sorted by node."""
    order = np.lexsort((scope, module, name, kind, node))
    order = order[length[order] > 0]
    length = length[order]
    keys = [column[order] for column in (node, kind, name, module, scope)]
    fresh = np.zeros(len(order), np.bool_)
    fresh[:1] = True
    for column in keys:
        fresh[1:] |= column[1:] != column[:-1]
    first = np.flatnonzero(fresh)
    summed = np.add.reduceat(length, first) if len(first) else length
    of_node, of_kind, of_name, of_module, within = (column[first].astype(np.int32) for column in keys)
    return Parts(of_node, of_kind.astype(np.int8), of_name, summed, of_module, within)
