"""The graph of some steps: what ran, and what each part had to wait for (metrics.md section 16).

A node runs for a fixed time, and begins when all that it depends on has ended, each time after a lag. Lags are derived
from the measured times, so a replay without a change gives these times exactly.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.step_graph.modules import GraphModule
from perfkit.records.per_rank.idle import CAUSES
from perfkit.trace.intervals import Ints, concatenated, rows_of

KINDS: Final = ("point", "host", "compute", "communication", "memcpy", "data_loading", *CAUSES)
"""Kinds of nodes and of their parts. A `point` takes no time; `host` are operators and calls that issue device work;
`compute` are kernels, without a device operators. The causes (metrics.md section 14) are the rest of a host thread."""
POINT, HOST, COMPUTE, COMMUNICATION, MEMCPY, DATA_LOADING = range(6)
FIRST_CAUSE: Final = 6

EDGE_KINDS: Final = (
    "start",
    "order",
    "launch",
    "stream_wait",
    "synchronisation",
    "handover",
    "issue",
    "arrival",
    "completion",
    "end",
    "unlaunched",
    "queue",
)
"""Why a node waits for another: nothing in the trace before it; the order of a thread or stream; a kernel for its
launch; a stream for another one; the host for the device; a thread for another one; a collective for the host; a
collective for the ranks; the host for a collective; the end of a step; work whose launch was not recorded for what
ended last, for a reason that is unknown; the host for room in the queue of a device."""
START, ORDER, LAUNCH, STREAM_WAIT, SYNCHRONISATION, HANDOVER, ISSUE, ARRIVAL, COMPLETION, END = range(10)
UNLAUNCHED, QUEUE = 10, 11

ORIGIN: Final = 0
"""The node before all others."""


class Nodes(NamedTuple):
    """Nodes; columns of shape (n,)."""

    start: Ints
    """Measured, by the reference clock (ns)."""
    end: Ints
    rank: Ints
    """-1 for nodes of no single rank."""
    lane: NDArray[np.int32]
    """Index into `StepGraph.lanes`; -1 for nodes of no lane."""
    step: NDArray[np.int32]
    """Index into `StepGraph.steps`."""
    kind: NDArray[np.int8]
    """Index into `KINDS`. A `host` node has parts of any kind."""
    name: NDArray[np.int32]
    """Index into `StepGraph.names`: of a collective its operator, of a kernel or copy the operator that launched it; -1
    for none."""
    dimension: NDArray[np.int16]
    """Of a collective: index into `StepGraph.dimensions`, or -1."""
    bytes: Ints
    """Of a collective: message size, or -1."""

    def where(self, mask: NDArray[np.bool_] | Ints | slice) -> "Nodes":
        return rows_of(self, mask)


class Edges(NamedTuple):
    """Dependencies; columns of shape (e,)."""

    source: NDArray[np.int32]
    target: NDArray[np.int32]
    lag_ns: Ints
    """Least time from the end of the source to the begin of the target."""
    kind: NDArray[np.int8]
    """Index into `EDGE_KINDS`."""

    def where(self, mask: NDArray[np.bool_] | Ints | slice) -> "Edges":
        return rows_of(self, mask)


class Parts(NamedTuple):
    """What nodes consist of; those of a node add up to its duration. Columns of shape (p,), sorted by node."""

    node: NDArray[np.int32]
    kind: NDArray[np.int8]
    """Index into `KINDS`."""
    name: NDArray[np.int32]
    """Index into `StepGraph.names`: an operator, kernel, annotation, or what ran in idle time: of the program's
    functions the innermost, if any did."""
    ns: Ints
    module: NDArray[np.int32]
    """Index into `StepGraph.modules`, or `NO_MODULE`."""
    scope: NDArray[np.int32]
    """Of idle time: index into `StepGraph.scopes`; else -1."""

    def where(self, mask: NDArray[np.bool_] | Ints | slice) -> "Parts":
        return rows_of(self, mask)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGraph:
    """The graph of consecutive steps of a run; nodes are numbered so that edges go from lower to higher numbers."""

    nodes: Nodes
    edges: Edges
    """Sorted by target."""
    parts: Parts
    names: tuple[str, ...]
    scopes: tuple[tuple[str, ...], ...]
    """What else may name idle time: what the program's function called, and the annotation around it."""
    dimensions: tuple[str, ...]
    lanes: tuple[str, ...]
    """Threads of the host, streams of devices, and queues of collectives, over all ranks."""
    lane_devices: tuple[int, ...]
    """Of each lane, the number of its device among the rank's; -1 of those of the host."""
    ranks: tuple[int, ...]
    steps: tuple[int | None, ...]
    """Numbers of the steps."""
    boundaries: Ints
    """Nodes at which each rank's steps begin, and its last step ends; shape (ranks, steps + 1)."""
    sink: int
    """The node at which all ranks have ended the last step."""
    violated: dict[str, int]
    """Number of dependencies that the measured times contradict, by kind: these are left out."""
    modules: tuple[GraphModule, ...] = ()
    """What parts belong to."""
    slow: NDArray[np.float64] | None = None
    """How many times as long each node takes for each cause of a slow network, shape (causes, n); None without any."""
    recorded: "StepGraph | None" = None
    """The graph of the steps as they were recorded; None if it is this one (`perfkit.engine.step_graph.real_time`)."""

    @property
    def duration_ns(self) -> Ints:
        """Duration of each node, shape (n,)."""
        return self.nodes.end - self.nodes.start

    @property
    def is_one_thread(self) -> bool:
        """Whether it has but one rank, without a device: its critical path is the main thread's time."""
        on_device = np.isin(self.nodes.kind, (COMPUTE, MEMCPY))
        return len(self.ranks) == 1 and not on_device.any()

    def step_ends(self, end_ns: Ints) -> Ints:
        """Return when the last rank begins each step, and ends the last one; shape (steps + 1,).

        Args:
            end_ns: end of each node, measured (`nodes.end`) or replayed.
        """
        return np.asarray(end_ns[self.boundaries].max(axis=0))


class Bound(NamedTuple):
    """Nodes in order, and dependencies whose lags give the measured times."""

    nodes: Nodes
    edges: Edges
    place: NDArray[np.int32]
    """New number of each node."""
    violated: dict[str, int]


def bind(nodes: Nodes, edges: Edges, tie: NDArray[np.int8]) -> Bound:
    """Order the nodes, points at one instant by `tie`, and derive the lags from the measured times.

    Of what a node depends on, what ended last decided when it began, with the least that its kind of dependency takes
    (`lag_ns` as given) added: a kernel that begins as soon as its launch lets it did not wait for the kernel before.
    The lag is the time from there to the begin. Where others end later in a replay, they decide, after that least. A
    node without any dependency depends on the origin (number 0), which must begin no later than any.
    """
    order = np.lexsort((tie, nodes.start, nodes.end))
    order = np.concatenate((np.zeros(1, np.int64), order[order != ORIGIN]))
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    nodes = nodes.where(order)
    edges = edges._replace(source=place[edges.source], target=place[edges.target])
    room = nodes.start[edges.target] - nodes.end[edges.source]
    count = np.bincount(edges.kind[room < 0], minlength=len(EDGE_KINDS)).tolist()
    violated = {kind: number for kind, number in zip(EDGE_KINDS, count, strict=True) if number}
    possible = (room >= 0) & (edges.source < edges.target)
    edges, room = edges.where(possible), room[possible]
    edges, room = _with_roots(nodes, edges, room)
    spare = room - np.minimum(edges.lag_ns, room)
    by = np.lexsort((-edges.kind, room, spare, edges.target))
    edges, room = edges.where(by), room[by]
    decides = np.ones(len(by), np.bool_)
    decides[1:] = edges.target[1:] != edges.target[:-1]
    lag = np.where(decides, room, np.minimum(edges.lag_ns, room))
    return Bound(nodes, edges._replace(lag_ns=lag), place, violated)


def _with_roots(nodes: Nodes, edges: Edges, room: Ints) -> tuple[Edges, Ints]:
    has = np.zeros(len(nodes.start), np.bool_)
    has[edges.target] = True
    has[ORIGIN] = True
    roots = np.flatnonzero(~has).astype(np.int32)
    first = nodes.start[roots] - nodes.end[ORIGIN]
    added = Edges(np.zeros_like(roots), roots, first, np.full(len(roots), START, np.int8))
    return concatenated([edges, added]), np.concatenate((room, first))
