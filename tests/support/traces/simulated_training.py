"""The graph of a simulated training run: what a change does to it is known, by simulating the changed run."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from perfkit.analysis.step_graph import graph as kinds
from perfkit.analysis.step_graph.graph import Draft, Edges, Nodes, Parts, StepGraph, bind
from perfkit.analysis.step_graph.modules import NO_MODULE

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
        bound = bind(Draft(nodes, edges, np.zeros(len(self.nodes), np.int8)))
        node, kind, name, ns = (np.array(column) for column in zip(*self.parts, strict=True))
        parts = Parts(node, kind, name, ns, np.full(len(node), NO_MODULE, np.int32))
        parts = parts._replace(node=bound.place[parts.node])
        return StepGraph(
            nodes=bound.nodes,
            edges=bound.edges,
            parts=parts.where(np.argsort(parts.node, kind="stable")),
            names=NAMES,
            dimensions=("dp",),
            lanes=tuple(f"rank {rank} {lane}" for rank in range(ranks) for lane in ("main", "queue")),
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
        _step(made, run, step, main, queue)
        for rank in range(ranks):
            boundary = made.node(kinds.POINT, made.end(main[rank]), made.end(main[rank]), rank, -1, step)
            made.edge(main[rank], boundary, kinds.END)
            boundaries[rank].append(boundary)
    latest = max(made.end(row[-1]) for row in boundaries)
    sink = made.node(kinds.POINT, latest, latest, -1, -1, run.steps - 1)
    for row in boundaries:
        made.edge(row[-1], sink, kinds.END)
    return made.graph(ranks, run.steps, boundaries, sink)


def _step(made: _Builder, run: Training, step: int, main: list[int], queue: list[int]) -> None:
    ranks = range(len(run.load))

    def work(rank: int, part: int, name: str, ns: int) -> None:
        begin = made.end(main[rank])
        node = made.node(
            kinds.HOST, begin, begin + ns, rank, 2 * rank + MAIN, step, part=part, name=NAMES.index(name)
        )
        made.edge(main[rank], node, kinds.ORDER if main[rank] else kinds.START)
        main[rank] = node

    for micro_step in range(run.micro_steps):
        for rank in ranks:
            work(rank, kinds.DATA_LOADING, "next", run.load[rank])
            work(rank, kinds.COMPUTE, "forward", run.forward[rank])
            if micro_step < run.micro_steps - 1:
                work(rank, kinds.COMPUTE, "backward", sum(run.backward[rank]))
    if not run.overlap:
        for rank in ranks:
            work(rank, kinds.COMPUTE, "backward", sum(run.backward[rank]))
    transfers: list[list[int]] = [[] for _ in ranks]
    for bucket, transfer_ns in enumerate(run.transfer):
        joined = []
        for rank in ranks:
            if run.overlap:
                work(rank, kinds.COMPUTE, "backward", run.backward[rank][bucket])
            begin = made.end(main[rank]) if run.at_once else max(made.end(main[rank]), made.end(queue[rank]))
            joined.append(made.node(kinds.POINT, begin, begin, rank, 2 * rank + QUEUE, step))
            made.edge(main[rank], joined[rank], kinds.ISSUE)
            if not run.at_once:
                made.edge(queue[rank], joined[rank], kinds.ORDER)
        begin = max(map(made.end, joined))
        for rank in ranks:
            given = {"name": NAMES.index("all_reduce"), "bytes": run.bytes[bucket] if run.bytes else -1}
            queue[rank] = made.node(
                kinds.COMMUNICATION, begin, begin + transfer_ns, rank, 2 * rank + QUEUE, step, **given
            )
            transfers[rank].append(queue[rank])
            made.edge(joined[rank], queue[rank], kinds.ORDER)
            for other in ranks:
                if other != rank:
                    made.edge(joined[other], queue[rank], kinds.ARRIVAL)
    for rank in ranks:
        if run.transfer:
            awaited = transfers[rank] if run.at_once else [queue[rank]]
            until = max(made.end(main[rank]), *map(made.end, awaited))
            wait = made.node(kinds.POINT, until, until, rank, 2 * rank + MAIN, step)
            for transfer in awaited:
                made.edge(transfer, wait, kinds.COMPLETION)
            made.edge(main[rank], wait, kinds.ORDER)
            main[rank] = wait
        work(rank, kinds.COMPUTE, "optimizer", run.optimizer)
        if run.log:
            work(rank, _HOST_WORK, "log", run.log)
