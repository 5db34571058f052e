"""The critical path in pieces: what ran on it, on which rank, and the lags between (metrics.md section 16)."""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.step_graph.graph import (
    COMMUNICATION,
    COMPUTE,
    EDGE_KINDS,
    END,
    HANDOVER,
    KINDS,
    LAUNCH,
    MEMCPY,
    QUEUE,
    START,
    SYNCHRONISATION,
    StepGraph,
)
from perfkit.engine.step_graph.replay import critical_path
from perfkit.trace.intervals import EMPTY, Ints, Union, difference, measure, merge, union

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
    "queue": ("launch_bound", "after there was room in the queue"),
}
"""Kind and name of the lags of each kind of dependency."""


def lag_name(kind: str) -> str:
    """Return what the lag of a kind of dependency is called."""
    return _LAGS[kind][1]


Floats = NDArray[np.float64]
_ON_DEVICE: Final = (COMPUTE, COMMUNICATION, MEMCPY)
"""In the order in which they come before each other."""
BESIDE: Final = (*_ON_DEVICE, KINDS.index("other_device"))
"""What devices do beside the path; the last: one is idle while another one works."""
_AFTER: Final = np.array([_ON_DEVICE.index(kind) if kind in _ON_DEVICE else 3 for kind in range(len(KINDS))])
"""How many of them come before a kind of nodes: before the host, all."""
_OF_HOST: Final = (START, LAUNCH, SYNCHRONISATION, HANDOVER, END, QUEUE)
_LAGS_AFTER: Final = np.array([3 * (kind in _OF_HOST) for kind in range(len(EDGE_KINDS))])
"""The same of the lags of dependencies: of those that are time of a host, all; of the device's, none."""


class Share(NamedTuple):
    """Pieces of the path; columns of shape (s,)."""

    kind: Ints
    """Index into `KINDS`."""
    name: Ints
    """Index into the graph's names, followed by those of `_LAGS`; -1 for none."""
    ns: Ints
    rank: Ints
    """-1 if of none."""
    module: Ints
    """Index into the graph's modules, or `NO_MODULE`."""
    place: Ints
    """Of the node on the path; of a lag, as many further as the path has nodes."""


class PathPieces:
    """The nodes and lags of the path within the windows of the steps, in order of time; columns of shape (p,)."""

    def __init__(self, graph: StepGraph) -> None:
        self.graph = graph
        begin, *_, end = graph.step_ends(graph.nodes.end).tolist()
        self.total_ns = int(end - begin)
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
        return Share(
            np.concatenate((graph.parts.kind[rows].astype(np.int64), lag_kinds()[which])),
            np.concatenate((graph.parts.name[rows].astype(np.int64), len(graph.names) + which)),
            np.concatenate((part_ns, lag_ns[lags])),
            np.concatenate((self.rank[owner], self.rank[lags])),
            np.concatenate((graph.parts.module[rows].astype(np.int64), self.largest(graph.parts.module)[lags])),
            np.concatenate((owner, len(self.node) + lags)),
        )

    def beside_device(self) -> Floats:
        """Return how long the rank's device does what comes before a piece of the path, meanwhile; shape (4, 2 p).

        As a step is divided: computing comes before communication, that before copies, and these before the host. Of
        several devices it is the mean, in which one that is idle while others work counts for the last of `BESIDE`. Of
        ranks without a device it is nothing. Lags come after the nodes.
        """
        nodes = self.graph.nodes
        start, end = np.concatenate((self.start, self.lag_start)), np.concatenate((self.end, self.lag_end))
        rank = np.concatenate((self.rank, self.rank))
        after = np.concatenate((_AFTER[nodes.kind[self.node]], _LAGS_AFTER[self.graph.edges.kind[self.edge]]))
        device = np.maximum(np.append(self.graph.lane_devices, 0)[nodes.lane], 0)
        own = np.where(after < len(_ON_DEVICE), np.tile(device[self.node], 2), -1)
        beside = np.zeros((len(BESIDE), len(start)))
        for number in np.unique(nodes.rank[np.isin(nodes.kind, (COMPUTE, MEMCPY))]).tolist():
            here = np.flatnonzero(rank == number)
            work = nodes.rank == number
            devices = np.unique(device[work & np.isin(nodes.kind, _ON_DEVICE)]).tolist()
            apart = {one: work & (device == one) for one in devices}
            beside[:, here] = self._beside(apart, start[here], end[here], after[here], own[here])
        return beside

    def _beside(self, apart: dict[int, NDArray[np.bool_]], start: Ints, end: Ints, after: Ints, own: Ints) -> Floats:
        """Return the same for pieces of one rank.

        Args:
            apart: the nodes of each of its devices.
            after: how many of `_ON_DEVICE` come before each.
            own: the device that each is on; -1 for those of the host.
        """
        nodes = self.graph.nodes

        def spans(rows: NDArray[np.bool_], kind: int) -> Union:
            rows = rows & (nodes.kind == kind)
            return union(nodes.start[rows], nodes.end[rows])

        together = np.any(list(apart.values()), axis=0)
        waiting = difference(spans(together, COMMUNICATION), spans(together, COMPUTE))
        beside = np.zeros((len(BESIDE), len(start)))
        all_busy, own_ns = EMPTY, np.zeros(len(start))
        for number, of_device in apart.items():
            busy, before_ns, rest_ns = EMPTY, np.zeros(len(start), np.int64), end - start
            for place, kind in enumerate(_ON_DEVICE):
                busy = merge(busy, spans(of_device, kind), waiting if kind == COMMUNICATION else EMPTY)
                covered_ns = measure(busy, start, end)
                ns = np.where((own != number) | (after > place), covered_ns - before_ns, 0)
                beside[place] += ns / len(apart)
                before_ns, rest_ns = covered_ns, rest_ns - ns
            all_busy = merge(all_busy, busy)
            own_ns[own == number] = rest_ns[own == number]
        # Where all devices are idle, the time is the piece's; else that of one of them, if it is on one.
        idle_ns = end - start - measure(all_busy, start, end)
        own_ns = idle_ns + np.maximum(own_ns - idle_ns, 0) / len(apart)
        beside[-1] = end - start - own_ns - beside[:-1].sum(axis=0)
        return beside

    def largest(self, column: NDArray[Any]) -> Ints:
        """Return the value of a column of parts that each node's largest part has; -1 for nodes without parts."""
        parts = self.graph.parts
        order = np.lexsort((-parts.ns, parts.node))
        at = np.searchsorted(parts.node[order], self.node)
        found = np.full(len(self.node), -1, np.int64)
        has = at < len(order)
        has[has] = parts.node[order[at[has]]] == self.node[has]
        found[has] = column[order[at[has]]]
        return found


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


def path_names(graph: StepGraph) -> list[str]:
    """Return what pieces' names refer to; the last is that of pieces without a name."""
    return [*graph.names, *(_LAGS[kind][1] for kind in EDGE_KINDS), ""]


def lag_kinds() -> Ints:
    """Return an index into `KINDS` for the lags of each of `EDGE_KINDS`."""
    return np.array([KINDS.index(_LAGS[kind][0]) for kind in EDGE_KINDS], np.int64)
