"""Sum the critical path of a run's steps by kind, rank, name and module (metrics.md section 16)."""

from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.step_graph import graph as kinds
from perfkit.engine.step_graph.graph import EDGE_KINDS, KINDS, StepGraph
from perfkit.engine.step_graph.longest_path import critical_path
from perfkit.engine.step_graph.modules import shown_paths
from perfkit.engine.step_graph.replay import UNLIMITED, slack
from perfkit.records.per_rank.work import OUTSIDE
from perfkit.records.per_rank.work_trees import Path, Weights, build_tree
from perfkit.records.per_run.critical_path import (
    CommunicationSlack,
    CriticalPath,
    PathKind,
    PathKindTime,
    PathModuleTime,
    PathNameTime,
    PathRankTime,
)
from perfkit.records.rank import UNKNOWN_OPERATOR
from perfkit.subjects.critical_path.drawing import DrawnPieces, draw_path
from perfkit.trace.intervals import Ints

MOST_NAMES: Final = 100
OTHER_NAMES: Final = "(others)"

_LAGS: Final = {
    "start": ("unknown", "before anything that was recorded"),
    "order": ("dependency", "between work of the same stream"),
    "launch": ("launch_bound", "from launch to start"),
    "stream_wait": ("dependency", "queued while another stream worked"),
    "synchronisation": ("synchronisation", "after the device was done"),
    "handover": ("host_work", "from one thread to another"),
    "issue": ("communication", "from issue to begin"),
    "arrival": ("communication", "after the last rank has joined"),
    "completion": ("communication", "after the transfer"),
    "end": ("unknown", "before the end of the step"),
    "unlaunched": ("unknown", "before work whose launch was not recorded"),
}
"""Kind and name of the lags of each kind of dependency."""


def lag_name(kind: str) -> str:
    """Return what the lag of a kind of dependency is called."""
    return _LAGS[kind][1]


class Share(NamedTuple):
    """Pieces of the path; columns of shape (s,)."""

    kind: Ints
    """Index into `KINDS`."""
    name: Ints
    """Index into the graph's names, followed by those of `_LAGS`; -1 for none."""
    ns: Ints
    module: Ints
    """Index into the graph's modules, or `NO_MODULE`."""


def summarize_path(graph: StepGraph, recorded_steps: int, missing_ranks: int, unaligned: list[int]) -> CriticalPath:
    """Return the critical path within the windows of the steps.

    Args:
        graph: the graph of the run.
        recorded_steps: number of steps that the traces have.
        missing_ranks: number of ranks without a trace.
        unaligned: ranks that are left out of it.
    """
    begin, *_, end = graph.step_ends(graph.nodes.end).tolist()
    found = PathPieces(graph, begin, end)
    pieces = found.by_name()
    return CriticalPath(
        steps=list(graph.steps),
        recorded_steps=recorded_steps,
        total_ns=end - begin,
        kinds=_by_kind(pieces),
        ranks=_by_rank(found),
        names=_by_name(pieces, graph),
        communication=_communication(graph, found),
        modules=path_by_module(graph, pieces.module, pieces.ns),
        drawn=draw_path(graph, found.to_draw(), KINDS, _names(graph)),
        linked=bool((graph.edges.kind == kinds.ARRIVAL).any()) if len(graph.ranks) > 1 else None,
        missing_ranks=missing_ranks,
        unaligned_ranks=unaligned,
        violated=sum(graph.violated.values()),
    )


class PathPieces:
    """The nodes and lags of the path within a window, in order of time; columns of shape (p,)."""

    def __init__(self, graph: StepGraph, begin: int, end: int) -> None:
        self.graph = graph
        path = critical_path(graph)
        nodes = graph.nodes
        self.node, self.edge = path.node.astype(np.int64), path.edge.astype(np.int64)

        def within(start: Ints, until: Ints) -> tuple[Ints, Ints]:
            return np.clip(start, begin, end), np.clip(until, begin, end)

        self.start, self.end = within(nodes.start[self.node], nodes.end[self.node])
        begun = nodes.start[self.node]
        self.lag_start, self.lag_end = within(begun - graph.edges.lag_ns[self.edge], begun)
        rank = nodes.rank[self.node].astype(np.int64)
        before = nodes.rank[graph.edges.source[self.edge]].astype(np.int64)
        self.rank = np.where(rank >= 0, rank, before)
        """Rank of the node and of the lag before it; -1 if there is none."""

    def by_name(self) -> Share:
        """Return what ran: the parts of nodes, and lags."""
        graph, nodes = self.graph, self.graph.nodes
        whole = nodes.end[self.node] - nodes.start[self.node]
        inside = self.end - self.start
        on_path = np.zeros(len(nodes.start), np.bool_)
        on_path[self.node[inside > 0]] = True
        rows = np.flatnonzero(on_path[graph.parts.node])
        place = np.full(len(nodes.start), -1, np.int64)
        place[self.node] = np.arange(len(self.node))
        owner = place[graph.parts.node[rows]]
        part_ns = _portions(graph.parts.ns[rows], owner, whole, inside)
        lag_ns = self.lag_end - self.lag_start
        lags = np.flatnonzero(lag_ns)
        which = graph.edges.kind[self.edge[lags]].astype(np.int64)
        lag_kind = np.array([KINDS.index(_LAGS[kind][0]) for kind in EDGE_KINDS])
        return Share(
            np.concatenate((graph.parts.kind[rows].astype(np.int64), lag_kind[which])),
            np.concatenate((graph.parts.name[rows].astype(np.int64), len(graph.names) + which)),
            np.concatenate((part_ns, lag_ns[lags])),
            np.concatenate((graph.parts.module[rows].astype(np.int64), self._largest(graph.parts.module)[lags])),
        )

    def _largest(self, column: NDArray[Any]) -> Ints:
        """Return the value of a column of parts that each node's largest part has; -1 for nodes without parts."""
        parts = self.graph.parts
        order = np.lexsort((-parts.ns, parts.node))
        at = np.searchsorted(parts.node[order], self.node)
        found = np.full(len(self.node), -1, np.int64)
        has = at < len(order)
        has[has] = parts.node[order[at[has]]] == self.node[has]
        found[has] = column[order[at[has]]]
        return found

    def to_draw(self) -> DrawnPieces:
        """Return nodes, each as what it mostly ran, and lags, in order of time."""
        graph = self.graph
        lag_kind = np.array([KINDS.index(_LAGS[kind][0]) for kind in EDGE_KINDS])
        which = graph.edges.kind[self.edge].astype(np.int64)
        names = self._largest(graph.parts.name)
        rank = np.where(self.rank >= 0, self.rank, graph.ranks[0])
        columns = (
            (self.lag_start, self.start),
            (self.lag_end, self.end),
            (rank, rank),
            (lag_kind[which], self._largest(graph.parts.kind)),
            (len(graph.names) + which, np.where(names >= 0, names, len(graph.names) + len(EDGE_KINDS))),
        )
        # Each lag comes before its node.
        pieces = DrawnPieces(*(np.stack(pair, axis=1).reshape(-1) for pair in columns))
        return pieces.where(np.flatnonzero(pieces.end > pieces.start))


def _portions(length: Ints, owner: Ints, whole: Ints, inside: Ints) -> Ints:
    """Return the parts of nodes of which some lie only partly in the window: in proportion, adding up exactly.

    Args:
        length: parts, shape (p,), those of a node adjacent.
        owner: the node of each, an index into the next two.
        whole: duration of each node.
        inside: how much of it is in the window.
    """
    length = length.copy()
    cut = np.flatnonzero(inside < whole)
    for node in cut[np.isin(cut, owner)].tolist():  # the first and the last of a path, at most
        rows = np.flatnonzero(owner == node)
        upto = np.cumsum(length[rows]).tolist()
        scaled = [part * int(inside[node]) // int(whole[node]) for part in upto]
        length[rows] = np.diff(scaled, prepend=0)
    return length


def _by_kind(pieces: Share) -> list[PathKindTime]:
    total_ns = _sums(pieces.kind, pieces.ns, len(KINDS))
    order = np.argsort(-total_ns, kind="stable").tolist()
    return [PathKindTime(kind=_kind(k), total_ns=int(total_ns[k])) for k in order if total_ns[k]]


def _kind(number: int) -> PathKind:
    return cast("PathKind", KINDS[number])


def _sums(key: NDArray[Any], ns: Ints, count: int) -> Ints:
    total_ns = np.zeros(count, np.int64)
    np.add.at(total_ns, key, ns)
    return total_ns


def _by_rank(found: PathPieces) -> list[PathRankTime]:
    graph = found.graph
    place = {rank: number for number, rank in enumerate(graph.ranks)}
    # The points of no rank on a path are between two ranks' nodes, and take no time: the lag is that of the later rank.
    rank = np.array([place.get(number, 0) for number in found.rank.tolist()], np.int64)
    ns = found.end - found.start + found.lag_end - found.lag_start
    total_ns = _sums(rank, ns, len(graph.ranks))
    order = np.argsort(-total_ns, kind="stable").tolist()
    return [PathRankTime(rank=graph.ranks[k], total_ns=int(total_ns[k])) for k in order if total_ns[k]]


def _names(graph: StepGraph) -> list[str]:
    """Return what pieces' names refer to; the last is that of pieces without a name."""
    return [*graph.names, *(_LAGS[kind][1] for kind in EDGE_KINDS), ""]


def _by_name(pieces: Share, graph: StepGraph) -> list[PathNameTime]:
    names = _names(graph)
    key = pieces.kind * (len(names) + 1) + pieces.name + 1
    keys, place = np.unique(key, return_inverse=True)
    total_ns = _sums(place.reshape(-1), pieces.ns, len(keys))
    order = np.argsort(-total_ns, kind="stable")
    order = order[total_ns[order] > 0]
    kinds_of, names_of = np.divmod(keys[order], len(names) + 1)
    columns = kinds_of, names_of, total_ns[order]
    rows = [
        PathNameTime(kind=_kind(kind), name=names[name - 1] if name else "", total_ns=ns)
        for kind, name, ns in zip(*(column[:MOST_NAMES].tolist() for column in columns), strict=True)
    ]
    rest = _sums(kinds_of[MOST_NAMES:], total_ns[order[MOST_NAMES:]], len(KINDS))
    return rows + [
        PathNameTime(kind=_kind(k), name=OTHER_NAMES, total_ns=int(rest[k])) for k in np.flatnonzero(rest).tolist()
    ]


def _communication(graph: StepGraph, found: PathPieces) -> list[CommunicationSlack]:
    """Return collectives by operator and dimension: by name, where the operator is unknown."""
    nodes = graph.nodes
    rows = np.flatnonzero(nodes.kind == kinds.COMMUNICATION)
    if not len(rows):
        return []
    room, duration = slack(graph, nodes.end)[rows], (nodes.end - nodes.start)[rows]
    on_path_ns = np.zeros(len(nodes.start), np.int64)
    on_path_ns[found.node] = found.end - found.start
    key = (nodes.name[rows].astype(np.int64) + 1) * (len(graph.dimensions) + 1) + nodes.dimension[rows] + 1
    groups = []
    for number in _longest_groups(key, duration + on_path_ns[rows]):
        name, dimension = divmod(number, len(graph.dimensions) + 1)
        own = key == number
        known = room[own][room[own] < UNLIMITED]
        row = CommunicationSlack(
            operator=graph.names[name - 1] if name else UNKNOWN_OPERATOR,
            dimension=graph.dimensions[dimension - 1] if dimension else None,
            count=int(own.sum()),
            transfer_ns=int(duration[own].sum()),
            path_ns=int(on_path_ns[rows[own]].sum()),
            never_waited_for=int((room[own] == UNLIMITED).sum()),
            slack_ns=int(np.median(known)) if len(known) else None,
        )
        groups.append(row)
    return sorted(groups, key=lambda row: (-row.path_ns, -row.transfer_ns, row.operator, row.dimension or ""))


def _longest_groups(key: Ints, ns: Ints) -> list[int]:
    """Return the keys with the most time, at most as many as names: some programs name each kernel differently."""
    keys, place = np.unique(key, return_inverse=True)
    total_ns = _sums(place.reshape(-1), ns, len(keys))
    longest: list[int] = keys[np.argsort(-total_ns, kind="stable")[:MOST_NAMES]].tolist()
    return longest


def path_by_module(graph: StepGraph, module: Ints, ns: Ints) -> list[PathModuleTime]:
    """Return the time on the path of modules with those within them; the roots add up to all of it.

    Args:
        graph: the graph.
        module: of each piece of the path, an index into the graph's modules, or `NO_MODULE`.
        ns: their time.
    """
    if not any(one.is_module for one in graph.modules):
        return []
    own_ns = np.zeros(len(graph.modules) + 1, np.int64)
    np.add.at(own_ns, module, ns)  # the last is that of -1
    paths = [*shown_paths(graph.modules), (OUTSIDE,)]
    inclusive: dict[Path, Weights] = {}
    for path, time_ns in zip(paths, own_ns.tolist(), strict=True):
        for length in range(1, len(path) + 1) if time_ns else ():
            own = Weights(total_ns=time_ns, self_ns=time_ns if length == len(path) else 0)
            inclusive[path[:length]] = inclusive.get(path[:length], Weights()).plus(own)
    return [
        PathModuleTime(depth=node.depth, name=node.name, total_ns=node.total_ns, self_ns=node.self_ns)
        for node in build_tree("class", inclusive).nodes
    ]
