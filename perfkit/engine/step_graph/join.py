"""Join the ranks' graphs by the collectives, sends and receives that were matched (metrics.md section 16)."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.kinds.classify import rows_by_key
from perfkit.engine.ranks.clock_alignment import aligned
from perfkit.engine.ranks.matched_run import pair_rows
from perfkit.engine.ranks.matching import MatchedCollectives
from perfkit.engine.step_graph import graph as kinds
from perfkit.engine.step_graph.graph import Edges, Nodes, Parts, StepGraph, bind
from perfkit.engine.step_graph.modules import NO_MODULE, GraphModule
from perfkit.engine.step_graph.rank.rank_graph import CollectiveNodes, RankGraph
from perfkit.records.cross_rank import HostClock
from perfkit.trace.intervals import Ints, concatenated

_ARRIVAL_TIE: Final = 1
_END_TIE: Final = 5
_NONE: Final = np.zeros(0, np.int64)
KeyT = TypeVar("KeyT", str, tuple[str, ...])


class Member(NamedTuple):
    """A rank's graph."""

    graph: RankGraph
    first_call: int
    """Place of the graph's first collective among those of the rank."""


def common_steps(members: Iterable[Member]) -> list[int | None]:
    """Return the longest sequence of steps that stand one after the other in the graphs of all ranks; empty if none.

    A trace may lack a step in the middle.
    """
    lists = [member.graph.steps for member in members]
    places = [{step: place for place, step in enumerate(steps)} for steps in lists]
    runs: list[list[int | None]] = []
    before: list[int] | None = None
    for step in lists[0] if lists else []:
        here = [place[step] for place in places if step in place]
        if len(here) < len(lists):
            before = None
            continue
        if before is None or here != [place + 1 for place in before]:
            runs.append([])
        runs[-1].append(step)
        before = here
    return max(runs, key=len, default=[])


def join_ranks(
    members: Mapping[int, Member],
    steps: Sequence[int | None],
    matched: MatchedCollectives | None,
    clocks: Sequence[HostClock],
    slow: NDArray[np.float64] | None,
) -> StepGraph:
    """Return the graph of some steps over all ranks.

    Args:
        steps: numbers of the steps, by `common_steps`; at least one.
        matched: the ranks' collectives; None for a single rank.
        clocks: of their hosts; the times of a rank whose offset is unknown are taken as they are.
        slow: as in `SlowNetwork.factors`.
    """
    return _Join(members, steps, clocks).graph(matched, slow)


class _Ends(NamedTuple):
    """Nodes of matched collectives; columns of shape (c,)."""

    row: Ints
    """Row in `MatchedCollectives`."""
    joined: Ints
    transfer: Ints


class _Join:
    """Nodes are numbered: the origin, those of each rank, arrivals, the sink."""

    def __init__(self, members: Mapping[int, Member], steps: Sequence[int | None], clocks: Sequence[HostClock]) -> None:
        self.steps = steps
        clock_of = {rank: clock for clock in clocks for rank in clock.ranks}
        self.names, self.dimensions, self.lanes = dict[str, int](), dict[str, int](), list[str]()
        self.scopes: dict[tuple[str, ...], int] = {}
        self.modules: dict[GraphModule, int] = {}
        self.calls: dict[int, CollectiveNodes] = {}
        self.lane_devices: list[int] = []
        nodes, edges, parts, ties, boundaries = [], [], [], [], []
        offset = 0  # a rank's own origin is dropped: its node 1 follows the last of the rank before
        for rank, (graph, first_call) in members.items():
            first = graph.steps.index(steps[0])
            own = graph.columns(first, first + len(steps))
            numbers = _numbered(graph.names, self.names)
            nodes.append(self._nodes(rank, graph, own.nodes, numbers, clock_of.get(rank)).where(slice(1, None)))
            between = own.edges.where((own.edges.source > 0) & (own.edges.target > 0))  # without those from the origin
            shift = np.int32(offset)
            edges.append(between._replace(source=between.source + shift, target=between.target + shift))
            name = _renumbered(own.parts.name, numbers).astype(np.int32)
            module = self._modules_of(graph)[own.parts.module]
            scope = _renumbered(own.parts.scope, _numbered(graph.scopes, self.scopes)).astype(np.int32)
            node = own.parts.node + np.int32(offset)
            parts.append(own.parts._replace(node=node, name=name, module=module, scope=scope))
            ties.append(own.tie[1:])
            boundaries.append(own.boundaries + offset)
            order, joined, transfer = own.collectives
            self.calls[rank] = CollectiveNodes(order + first_call, joined + offset, transfer + offset)
            offset += len(own.nodes.start) - 1
        begin = min(int(of_rank.start.min()) for of_rank in nodes)
        self.nodes = concatenated([_points(np.array([begin])), *nodes])
        self.edges = edges
        self.parts = concatenated(parts)
        self.ties = [np.zeros(1, np.int8), *ties]
        self.boundaries = np.array(boundaries)
        self.late = 0

    def _nodes(self, rank: int, graph: RankGraph, own: Nodes, names: Ints, clock: HostClock | None) -> Nodes:
        start, end = (aligned(clock, time) if clock else time for time in (own.start, own.end))
        name = _renumbered(own.name, names)
        dimension = _renumbered(own.dimension, _numbered(graph.dimensions, self.dimensions))
        lane = np.where(own.lane >= 0, own.lane + len(self.lanes), -1).astype(np.int32)
        self.lanes += graph.lanes
        self.lane_devices += graph.lane_devices
        return own._replace(
            start=start,
            end=end,
            rank=np.full(len(start), rank, np.int64),
            lane=lane,
            name=name.astype(np.int32),
            dimension=dimension.astype(np.int16),
        )

    def _modules_of(self, graph: RankGraph) -> NDArray[np.int32]:
        """Return the place of each module of a rank among those of all; the last is that of `NO_MODULE`."""
        places: list[int] = []
        for module in graph.modules:
            parent = places[module.parent] if module.parent >= 0 else -1
            own = GraphModule(parent, module.instance, module.names)
            places.append(self.modules.setdefault(own, len(self.modules)))
        return np.array([*places, NO_MODULE], np.int32)

    # ---- between ranks ---------------------------------------------------------------------------------------------

    def graph(self, matched: MatchedCollectives | None, slow: NDArray[np.float64] | None) -> StepGraph:
        ends = _Ends(_NONE, _NONE, _NONE)
        if matched is not None:
            ends = self._ends(matched)
            self._join_collectives(matched, ends)
            self._join_receives(matched, ends)
        sink = len(self.nodes.start)
        ends_ns = self.nodes.end[self.boundaries[:, -1]]
        self._add_points(ends_ns.max(keepdims=True), _END_TIE, np.array([len(self.steps) - 1]))
        last = self._last_nodes(int(ends_ns.max()))
        self._link(last, np.full(len(last), sink), kinds.END)
        edges = concatenated(self.edges)
        self.parts = self._cut_parts()
        bound = bind(self.nodes, edges, np.concatenate(self.ties))
        violated = dict(bound.violated)
        if self.late:
            violated["arrival"] = violated.get("arrival", 0) + self.late
        node = bound.place[self.parts.node]
        by_node = np.argsort(node, kind="stable")
        return StepGraph(
            nodes=bound.nodes,
            edges=bound.edges,
            parts=self.parts._replace(node=node).where(by_node),
            names=tuple(self.names),
            scopes=tuple(self.scopes),
            dimensions=tuple(self.dimensions),
            lanes=tuple(self.lanes),
            lane_devices=tuple(self.lane_devices),
            ranks=tuple(self.calls),
            steps=tuple(self.steps),
            boundaries=bound.place[self.boundaries].astype(np.int64),
            sink=int(bound.place[sink]),
            violated=violated,
            modules=tuple(self.modules),
            slow=_of_nodes(slow, matched.collective[ends.row], bound.place[ends.transfer], len(bound.place))
            if matched is not None and slow is not None
            else None,
        )

    def _last_nodes(self, end: int) -> Ints:
        """Return the nodes that nothing depends on and that end by the end of the last step: it includes them."""
        followed = np.zeros(len(self.nodes.start), np.bool_)
        for edges in self.edges:
            followed[edges.source] = True
        followed[kinds.ORIGIN] = followed[-1] = True  # the sink is the last
        return np.flatnonzero(~followed & (self.nodes.end <= end))

    def _ends(self, matched: MatchedCollectives) -> _Ends:
        """Return the nodes of the collectives that are in the graphs."""
        parts = [_Ends(_NONE, _NONE, _NONE)]
        rows_of = rows_by_key(matched.rank)
        for rank, calls in self.calls.items():
            rows = rows_of.get(rank, _NONE)
            row_of = np.full(len(rows), -1, np.int64)
            row_of[matched.order[rows]] = rows
            parts.append(_Ends(row_of[calls.order], calls.joined, calls.transfer))
        return concatenated(parts)

    def _join_collectives(self, matched: MatchedCollectives, ends: _Ends) -> None:
        """Let the transfer of a collective begin when the last rank has joined it."""
        split = matched.splits[ends.row]
        row, joined, transfer = (column[split] for column in ends)
        number = matched.collective[row]
        by = np.argsort(number, kind="stable")
        row, joined, transfer, number = row[by], joined[by], transfer[by], number[by]
        opens = np.flatnonzero(np.diff(number, prepend=-1))
        if not len(opens):
            return
        count = np.diff(np.append(opens, len(number)))
        arrived = np.repeat(np.maximum.reduceat(self.nodes.start[joined], opens), count)
        first = len(self.nodes.start)
        arrival = first + np.repeat(np.arange(len(opens)), count)
        several = np.repeat(count, count) > 1
        self._add_points(arrived[opens], _ARRIVAL_TIE, self.nodes.step[joined[opens]])
        self._link(joined[several], arrival[several], kinds.ARRIVAL)
        # By the clocks, a rank may leave before another one joins: then nothing is known of when its transfer began.
        in_time = several & (self.nodes.end[transfer] >= arrived)
        self.late += int((several & ~in_time).sum())
        self._begin_transfer(transfer[in_time], matched.transfer_ns[row[in_time]], arrived[in_time])
        self._link(arrival[in_time], transfer[in_time], kinds.ARRIVAL)

    def _begin_transfer(self, transfer: Ints, length_ns: Ints, after_ns: Ints) -> None:
        end = self.nodes.end[transfer]
        start = end - np.minimum(length_ns, end - after_ns)
        self.nodes.start[transfer] = np.maximum(start, self.nodes.start[transfer])

    def _join_receives(self, matched: MatchedCollectives, ends: _Ends) -> None:
        """Let the transfer of a receive begin when its send has, and that of a send when its receive has.

        A send that ended before its receive began did not wait: there was a buffer for it.
        """
        pairs = pair_rows(matched)
        place = np.full(len(matched.rank), -1, np.int64)
        place[ends.row] = np.arange(len(ends.row))
        known = (place[pairs.send] >= 0) & (place[pairs.receive] >= 0)
        send, receive = place[pairs.send[known]], place[pairs.receive[known]]
        in_time = self._follow(matched, ends, send, receive)
        self.late += int((~in_time).sum())
        self._follow(matched, ends, receive, send)

    def _follow(self, matched: MatchedCollectives, ends: _Ends, first: Ints, then: Ints) -> NDArray[np.bool_]:
        """Let transfers begin when others have been joined, if they end after that; returns which do."""
        joined, transfer = ends.joined[first], ends.transfer[then]
        at = self.nodes.end[joined]
        in_time = np.asarray(self.nodes.end[transfer] >= at)
        joined, transfer, at = joined[in_time], transfer[in_time], at[in_time]
        self._begin_transfer(transfer, matched.transfer_ns[ends.row[then][in_time]], at)
        self._link(joined, transfer, kinds.ARRIVAL)
        return in_time

    def _cut_parts(self) -> Parts:
        """Return the parts with those of transfers cut to what the transfers are without waiting."""
        duration = self.nodes.end - self.nodes.start
        alone = self.nodes.kind[self.parts.node] != kinds.HOST
        length = np.where(alone, duration[self.parts.node], self.parts.ns)
        return self.parts._replace(ns=length).where(length > 0)

    def _add_points(self, at: Ints, tie: int, step: NDArray[Any]) -> None:
        self.nodes = concatenated([self.nodes, _points(at)._replace(step=step.astype(np.int32))])
        self.ties.append(np.full(len(at), tie, np.int8))

    def _link(self, source: Ints, target: Ints, kind: int) -> None:
        size = len(source)
        self.edges.append(
            Edges(
                source.astype(np.int32),
                target.astype(np.int32),
                np.zeros(size, np.int64),
                np.full(size, kind, np.int8),
            )
        )


def _of_nodes(
    of_collective: NDArray[np.float64], collective: Ints, node: NDArray[np.int32], count: int
) -> NDArray[np.float64]:
    """Return the factors of each node, of which some are transfers of collectives; shape (causes, n)."""
    known = collective >= 0
    factors = np.ones((len(of_collective), count))
    factors[:, node[known]] = of_collective[:, collective[known]]
    return factors


def _points(at: Ints) -> Nodes:
    """Return nodes of no rank that take no time, in the first step."""
    none = np.full(len(at), -1, np.int32)
    kind, dimension = np.full(len(at), kinds.POINT, np.int8), none.astype(np.int16)
    return Nodes(at, at, none.astype(np.int64), none, np.zeros_like(none), kind, none, dimension, none.astype(np.int64))


def _numbered(own: Sequence[KeyT], known: dict[KeyT, int]) -> Ints:
    """Return the index of each key of one rank among those of all ranks, `known`, to which new ones are added."""
    if not known:
        known.update(zip(own, count()))
        if len(known) == len(own):
            return np.arange(len(own))
        known.clear()
    fresh = [key for key in dict.fromkeys(own) if key not in known]
    known.update(zip(fresh, count(len(known))))
    return np.fromiter(map(known.__getitem__, own), np.int64, len(own))


def _renumbered(column: NDArray[Any], numbers: Ints) -> Ints:
    """Return what the values of a column, indices or -1, have become."""
    return np.asarray(np.append(numbers, -1)[column])
