"""The graph of a simulated training run: what a change does to it is known, by simulating the changed run."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perfkit.engine.step_graph import graph as kinds
from perfkit.engine.step_graph.graph import Edges, Nodes, Parts, StepGraph, bind
from perfkit.engine.step_graph.modules import NO_MODULE

NAMES = ("next", "forward", "backward", "optimizer", "all_reduce", "log", "wait")
_HOST_WORK = kinds.KINDS.index("host_work")
MAIN, QUEUE = range(2)


class Training(NamedTuple):
    """What a step of data-parallel training takes (ns); of ranks, each has its own."""

    load: Sequence[int]
    forward: Sequence[int]
    backward: Sequence[Sequence[int]]
    """Per rank, the time before each bucket is full."""
    transfer: Sequence[int]
    """Per bucket."""
    optimizer: int = 5
    log: int = 0
    """Idle time of the host."""
    micro_steps: int = 1
    overlap: bool = True
    at_once: bool = False
    """Whether a transfer begins before the one before it has ended."""
    bytes: Sequence[int] = ()
    """Per bucket."""
    steps: int = 5


class _Builder:
    def __init__(self) -> None:
        self.nodes: list[tuple[int, ...]] = []
        self.edges: list[tuple[int, int, int, int]] = []
        self.parts: list[tuple[int, int, int, int]] = []

    def node(self, kind: int, start: int, end: int, rank: int, lane: int, step: int, **given: int) -> int:
        name, size = given.get("name", -1), given.get("bytes", -1)
        dimension = 0 if kind == kinds.COMMUNICATION else -1
        self.nodes.append((start, end, rank, lane, step, kind, name, dimension, size))
        if end > start:
            self.parts.append((len(self.nodes) - 1, given.get("part", kind), name, end - start))
        return len(self.nodes) - 1

    def edge(self, source: int, target: int, kind: int) -> None:
        self.edges.append((source, target, 0, kind))

    def end(self, node: int) -> int:
        return self.nodes[node][1]

    def graph(self, ranks: int, steps: int, boundaries: list[list[int]], sink: int) -> StepGraph:
        nodes = Nodes(*(np.array(c) for c in zip(*self.nodes, strict=True)))
        edges = Edges(*(np.array(c) for c in zip(*self.edges, strict=True)))
        bound = bind(nodes, edges, np.zeros(len(self.nodes), np.int8))
        node, kind, name, ns = (np.array(column) for column in zip(*self.parts, strict=True))
        parts = Parts(node, kind, name, ns, *np.full((2, len(node)), NO_MODULE, np.int32))
        parts = parts._replace(node=bound.place[parts.node])
        return StepGraph(
            scopes=(),
            nodes=bound.nodes,
            edges=bound.edges,
            parts=parts.where(np.argsort(parts.node, kind="stable")),
            names=NAMES,
            dimensions=("dp",),
            lanes=tuple(f"rank {rank} {lane}" for rank in range(ranks) for lane in ("main", "queue")),
            lane_devices=(-1,) * (2 * ranks),
            ranks=tuple(range(ranks)),
            steps=tuple(range(steps)),
            boundaries=np.array(bound.place[np.array(boundaries)], np.int64),
            sink=int(bound.place[sink]),
            violated=bound.violated,
        )


def simulate(run: Training) -> StepGraph:
    """Return the graph of a run; nodes begin as soon as they can."""
    ranks, made = len(run.load), _Builder()
    made.node(kinds.POINT, 0, 0, -1, -1, 0)
    main, queue = [0] * ranks, [0] * ranks
    boundaries = [[made.node(kinds.POINT, 0, 0, rank, -1, 0)] for rank in range(ranks)]
    for row in boundaries:
        made.edge(0, row[0], kinds.START)
    for step in range(run.steps):
        _Step(made, run, step, main, queue).simulate()
        for rank in range(ranks):
            boundary = made.node(kinds.POINT, made.end(main[rank]), made.end(main[rank]), rank, -1, step)
            made.edge(main[rank], boundary, kinds.END)
            boundaries[rank].append(boundary)
    latest = max(made.end(row[-1]) for row in boundaries)
    sink = made.node(kinds.POINT, latest, latest, -1, -1, run.steps - 1)
    for row in boundaries:
        made.edge(row[-1], sink, kinds.END)
    return made.graph(ranks, run.steps, boundaries, sink)


class _Step:
    """One step of all ranks.

    Args:
        made: Collects nodes and edges.
        run: The run.
        number: The step's number.
        main: Last node of each rank's main thread; advanced.
        queue: Last node of each rank's communication queue; advanced.
    """

    def __init__(self, made: _Builder, run: Training, number: int, main: list[int], queue: list[int]) -> None:
        self._made, self._run, self._number, self._main, self._queue = made, run, number, main, queue
        self._ranks = range(len(run.load))
        self._transfers: list[list[int]] = [[] for _ in self._ranks]
        """Of each rank."""

    def simulate(self) -> None:
        """Add the step."""
        for micro_step in range(self._run.micro_steps):
            for rank in self._ranks:
                self._work(rank, kinds.DATA_LOADING, "next", self._run.load[rank])
                self._work(rank, kinds.COMPUTE, "forward", self._run.forward[rank])
                if micro_step < self._run.micro_steps - 1:
                    self._backward(rank)
        if not self._run.overlap:
            for rank in self._ranks:
                self._backward(rank)
        for bucket in range(len(self._run.transfer)):
            self._all_reduce(bucket)
        for rank in self._ranks:
            self._finish(rank)

    def _backward(self, rank: int) -> None:
        self._work(rank, kinds.COMPUTE, "backward", sum(self._run.backward[rank]))

    def _work(self, rank: int, part: int, name: str, ns: int) -> None:
        last = self._main[rank]
        begin, lane = self._made.end(last), 2 * rank + MAIN
        node = self._made.node(
            kinds.HOST, begin, begin + ns, rank, lane, self._number, part=part, name=NAMES.index(name)
        )
        self._made.edge(last, node, kinds.ORDER if last else kinds.START)
        self._main[rank] = node

    def _all_reduce(self, bucket: int) -> None:
        """Transfer a bucket once all ranks have joined."""
        made, run = self._made, self._run
        joined = [self._join(rank, bucket) for rank in self._ranks]
        begin = max(map(made.end, joined))
        end = begin + run.transfer[bucket]
        given = {"name": NAMES.index("all_reduce"), "bytes": run.bytes[bucket] if run.bytes else -1}
        for rank in self._ranks:
            node = made.node(kinds.COMMUNICATION, begin, end, rank, 2 * rank + QUEUE, self._number, **given)
            self._queue[rank] = node
            self._transfers[rank].append(node)
            made.edge(joined[rank], node, kinds.ORDER)
            for other in self._ranks:
                if other != rank:
                    made.edge(joined[other], node, kinds.ARRIVAL)

    def _join(self, rank: int, bucket: int) -> int:
        """Issue a bucket on one rank; return the node at which it joins."""
        made, run = self._made, self._run
        if run.overlap:
            self._work(rank, kinds.COMPUTE, "backward", run.backward[rank][bucket])
        main, queue = self._main[rank], self._queue[rank]
        begin = made.end(main) if run.at_once else max(made.end(main), made.end(queue))
        node = made.node(kinds.POINT, begin, begin, rank, 2 * rank + QUEUE, self._number)
        made.edge(main, node, kinds.ISSUE)
        if not run.at_once:
            made.edge(queue, node, kinds.ORDER)
        return node

    def _finish(self, rank: int) -> None:
        """Wait for the transfers, then optimize and log."""
        if self._run.transfer:
            self._await(rank)
        self._work(rank, kinds.COMPUTE, "optimizer", self._run.optimizer)
        if self._run.log:
            self._work(rank, _HOST_WORK, "log", self._run.log)

    def _await(self, rank: int) -> None:
        made, main = self._made, self._main[rank]
        awaited = self._transfers[rank] if self._run.at_once else [self._queue[rank]]
        until = max(made.end(main), *map(made.end, awaited))
        wait = made.node(kinds.POINT, until, until, rank, 2 * rank + MAIN, self._number)
        for transfer in awaited:
            made.edge(transfer, wait, kinds.COMPLETION)
        made.edge(main, wait, kinds.ORDER)
        self._main[rank] = wait
