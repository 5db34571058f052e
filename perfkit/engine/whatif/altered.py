"""A graph of steps with changed durations, lags and dependencies."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.step_graph.graph import ARRIVAL, ORIGIN, START, Edges, StepGraph
from perfkit.engine.step_graph.real_time import filled
from perfkit.engine.step_graph.replay import replay
from perfkit.trace.intervals import Ints

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Altered:
    """A graph, and the times to replay it with."""

    graph: StepGraph
    part_ns: Floats
    """Duration of each part, shape (p,)."""
    lag_ns: Ints
    """Of each edge, shape (e,)."""

    @property
    def duration_ns(self) -> Ints:
        """Duration of each node, what its parts add up to, rounded; shape (n,).

        Whole nanoseconds below 2^53 are exact, so that an unchanged node takes exactly as long as measured.
        """
        sums = np.bincount(self.graph.parts.node, weights=self.part_ns, minlength=len(self.graph.nodes.start))
        return np.asarray(np.rint(sums).astype(np.int64))

    def scaled(self, parts: Mask, factor: float | Floats) -> "Altered":
        """Return this with some parts taking `factor` of their time."""
        part_ns = self.part_ns.copy()
        part_ns[parts] *= factor
        return replace(self, part_ns=part_ns)

    def without(self, edges: Mask) -> "Altered":
        """Return this without some dependencies; a node that is left without any follows the origin.

        The least lag of what is left decides.
        """
        kept = self.graph.edges.where(~edges)._replace(lag_ns=self.lag_ns[~edges])
        return with_edges(self, kept)

    def without_ranks(self, ranks: Sequence[int]) -> "Altered":
        """Return this with steps that end when the other ranks end them, and without waiting for these."""
        graph = self.graph
        source, target = graph.nodes.rank[graph.edges.source], graph.nodes.rank[graph.edges.target]
        gone = (graph.edges.kind == ARRIVAL) & np.isin(source, ranks) & (source != target)
        kept = [place for place, rank in enumerate(graph.ranks) if rank not in ranks]
        fewer = replace(
            graph, ranks=tuple(graph.ranks[place] for place in kept), boundaries=graph.boundaries[np.array(kept)]
        )
        return replace(self, graph=fewer).without(np.asarray(gone))

    def step_ends(self) -> Ints:
        """Return when the last rank begins each step, and ends the last one; shape (steps + 1,)."""
        return self.graph.step_ends(self.replay())

    def replay(self) -> Ints:
        """Return the end of each node."""
        return replay(self.graph, self.duration_ns, self.lag_ns)


def steps_ns(states: Sequence[Altered]) -> Ints:
    """Return how long each step takes in a replay."""
    return np.concatenate([np.diff(state.step_ends()) for state in states])


def gained_ns(step_ns: Ints, states: Sequence[Altered]) -> int:
    """Return by how much the mean step of a replay is shorter than that of steps of `step_ns`."""
    return max(0, round(float((step_ns - steps_ns(states)).mean())))


def settled(state: Altered) -> StepGraph:
    """Return a graph whose own times are those of a replay."""
    end = state.replay()
    nodes = state.graph.nodes._replace(start=end - state.duration_ns, end=end)
    parts = state.graph.parts._replace(ns=np.rint(state.part_ns).astype(np.int64))
    edges = state.graph.edges._replace(lag_ns=state.lag_ns)
    return replace(state.graph, nodes=nodes, edges=edges, parts=filled(parts, nodes))


def unaltered(graph: StepGraph) -> Altered:
    """Return a graph with its measured times."""
    return Altered(graph, graph.parts.ns.astype(np.float64), graph.edges.lag_ns)


def with_edges(state: Altered, edges: Edges) -> Altered:
    """Return `state` with other dependencies, which go from lower to higher nodes; sorted here."""
    nodes = state.graph.nodes
    bare = np.ones(len(nodes.start), np.bool_)
    bare[edges.target] = False
    bare[ORIGIN] = False
    roots = np.flatnonzero(bare).astype(np.int32)
    zeros = np.zeros(len(roots), np.int64)
    added = Edges(zeros.astype(np.int32), roots, zeros, np.full(len(roots), START, np.int8))
    joined = joined_edges(edges, added)
    by = np.argsort(joined.target, kind="stable")
    ordered = joined.where(by)
    return replace(state, graph=replace(state.graph, edges=ordered), lag_ns=ordered.lag_ns)


def joined_edges(*tables: Edges) -> Edges:
    """Return the dependencies of several tables."""
    return Edges(
        np.concatenate([table.source for table in tables]),
        np.concatenate([table.target for table in tables]),
        np.concatenate([table.lag_ns for table in tables]),
        np.concatenate([table.kind for table in tables]),
    )
