"""Change of a rank: its own work takes a factor of its time, or as long as that of the other ranks."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final, Self

import numpy as np

from perfkit.engine.ranks.delay import RankDelay
from perfkit.engine.step_graph.graph import COMMUNICATION, KINDS, StepGraph
from perfkit.engine.whatif.altered import Altered, Floats, Mask
from perfkit.engine.whatif.change import Change, ChangedRun, ChangeError, Effect
from perfkit.engine.whatif.parts import rank_of_parts, time_per_step
from perfkit.engine.whatif.values import read_factor
from perfkit.records.facts import Fact, fact
from perfkit.records.run import RunReport
from perfkit.trace.intervals import Ints

_TRIED: Final = 8
"""Ranks that are tried."""


class ScaleRank(Change, frozen=True):
    """A rank's own work takes as long as the other ranks', or `factor` of its time."""

    example: ClassVar = "rank3=healthy"
    examples: ClassVar = "rank3=healthy, rank3=2x"
    help: ClassVar = "a rank's own work: as on the other ranks, or scaled"
    subject: ClassVar = r"rank([0-9]{1,8})"

    rank: int
    factor: float | None
    """None is healthy."""

    @classmethod
    def read(cls, name: str, value: str) -> Self:
        """Return the change."""
        return cls(int(name), None if value == "healthy" else read_factor(value, "rank_factor"))

    @classmethod
    def candidates(cls, graph: StepGraph, run: RunReport) -> Iterator[str]:
        """Yield the ranks that may hold up the others: the stragglers, else those with the most work of their own."""
        if len(graph.ranks) < 2:
            return
        named = [row.rank for row in run.cross_rank.stragglers] if run.cross_rank else []
        own = graph.parts.kind != COMMUNICATION
        row = np.searchsorted(np.array(graph.ranks), rank_of_parts(graph)[own])
        work = np.bincount(row, weights=graph.parts.ns[own], minlength=len(graph.ranks))
        by_work = [graph.ranks[place] for place in np.argsort(work)[::-1].tolist()]
        for rank in list(dict.fromkeys([*named, *by_work]))[:_TRIED]:
            yield f"rank{rank}=healthy"

    def apply(self, run: ChangedRun) -> Effect:
        """Scale the rank's own work."""
        state, graph = run.state, run.graph
        if self.rank not in graph.ranks:
            raise ChangeError(fact("no_such_rank", rank=self.rank, ranks=graph.ranks))
        own = _own_work(graph, self.rank)
        what = fact("own_work"), time_per_step(state, own)[0]
        if self.factor is not None:
            return Effect(state.scaled(own, self.factor), what, [fact("transfers_stay")])
        if len(graph.ranks) == 1:
            raise ChangeError(fact("no_other_rank"))
        peers = _peers(graph, self.rank, run.report.cross_rank.compared if run.report.cross_rank else ())
        others = [rank for rank in peers if rank not in (self.rank, *run.healthy)]
        healed = state.scaled(own, _as_others(state, own, others, peers))
        return Effect(healed, what, [_assumption(graph, others)])


def healthy(state: Altered, delays: Sequence[RankDelay], compared: Sequence[Sequence[int]]) -> Altered:
    """Return a state without some delays of ranks: what is late takes as long as on the others.

    Args:
        state: the graph with its times.
        delays: the delays; their ranks are no measure for each other.
        compared: the ranks that can be compared with each other; empty if all can.
    """
    graph, ranks = state.graph, {one.rank for one in delays}
    for one in delays:
        share = np.array([one.share.get(number, 0.0) for number in graph.steps])[graph.nodes.step[graph.parts.node]]
        late = _own_work(graph, one.rank) & (share > 0)
        peers = _peers(graph, one.rank, compared)
        others = [rank for rank in peers if rank not in ranks]
        if late.any():
            state = state.scaled(late, 1 + share[late] * (_as_others(state, late, others, peers) - 1))
    return state


def _peers(graph: StepGraph, rank: int, compared: Sequence[Sequence[int]]) -> list[int]:
    """Return the ranks of the graph that a rank can be compared with, itself included."""
    among = next((some for some in compared if rank in some), graph.ranks)
    return [one for one in graph.ranks if one in among]


def _own_work(graph: StepGraph, rank: int) -> Mask:
    return np.asarray((rank_of_parts(graph) == rank) & (graph.parts.kind != COMMUNICATION))


def _assumption(graph: StepGraph, measure: Sequence[int]) -> Fact:
    if not measure:
        return fact("as_usual_rank")
    others = len(measure) == len(graph.ranks) - 1
    return fact("as_other_ranks") if others else fact("as_ranks", ranks=measure)


def _as_others(state: Altered, own: Mask, measure: Sequence[int], peers: Sequence[int]) -> Floats:
    """Return the factor of each part of a rank that makes each name's time per step that of others.

    Args:
        state: the graph with its times.
        own: the parts of the rank.
        measure: the ranks whose median counts; without any, because all ranks are to be healthy, one of all in each
            step: that with the lower median of all own times. If they take turns at being late, it is not the late one.
        peers: all ranks that it can be compared with.
    """
    graph = state.graph
    known = np.array(measure or peers)
    others = (graph.parts.kind != COMMUNICATION) & np.isin(rank_of_parts(graph), known)
    code = _codes(graph, own | others)
    keys, place = np.unique(code[own], return_inverse=True)
    now = np.bincount(place, weights=state.part_ns[own], minlength=len(keys))
    alike = np.flatnonzero(others & np.isin(code, keys))
    row = np.searchsorted(known, rank_of_parts(graph)[alike])
    where = row * len(keys) + np.searchsorted(keys, code[alike])
    total = np.bincount(where, weights=state.part_ns[alike], minlength=len(known) * len(keys))
    total = total.reshape(len(known), len(keys))
    if measure:
        target = np.median(total, axis=0)
    else:
        step = graph.nodes.step[graph.parts.node[own]][np.unique(place, return_index=True)[1]]
        target = total[_usual_rank(state, known)[step], np.arange(len(keys))]
    factor: Floats = np.divide(target, now, out=np.ones(len(keys)), where=now > 0)[place]
    return factor


def _usual_rank(state: Altered, ranks: Ints) -> Ints:
    """Return the place of the one of some ranks with the lower median of own times in each step, shape (steps,)."""
    graph = state.graph
    rank = rank_of_parts(graph)
    own = np.flatnonzero((graph.parts.kind != COMMUNICATION) & np.isin(rank, ranks))
    where = np.searchsorted(ranks, rank[own]) * len(graph.steps) + graph.nodes.step[graph.parts.node[own]]
    total = np.bincount(where, weights=state.part_ns[own], minlength=len(ranks) * len(graph.steps))
    order = np.argsort(total.reshape(len(ranks), -1), axis=0, kind="stable")
    usual: Ints = order[(len(ranks) - 1) // 2]
    return usual


def _codes(graph: StepGraph, among: Mask) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return a number for the step, kind and name of each part, and for its place among them if all ranks have as many.

    What runs several times in a step may be longer in one place only, and that is where the others wait.

    Args:
        graph: the graph.
        among: the parts of the ranks that are compared; the numbers of others mean nothing.
    """
    step = graph.nodes.step[graph.parts.node].astype(np.int64) + 1
    code: np.ndarray[tuple[int], np.dtype[np.int64]] = (step * len(KINDS) + graph.parts.kind) * (
        len(graph.names) + 1
    ) + (graph.parts.name + 1)
    parts = np.flatnonzero(among)
    number = _numbers(code[parts], rank_of_parts(graph)[parts], graph.nodes.start[graph.parts.node[parts]])
    code *= int(number.max(initial=0)) + 1
    code[parts] += number
    return code


def _numbers(code: Ints, rank: Ints, start: Ints) -> Ints:
    """Return which of its rank's parts of this code each part is, in order of time; 0 where ranks have not as many."""
    order = np.lexsort((start, rank, code))
    first = np.flatnonzero((np.diff(code[order], prepend=-1) != 0) | (np.diff(rank[order], prepend=-1) != 0))
    count = np.diff(np.append(first, len(order)))
    _, earliest, of_code = np.unique(code[order[first]], return_index=True, return_inverse=True)
    alike = np.bincount(of_code) == len(np.unique(rank))
    alike[of_code[count != count[earliest][of_code]]] = False
    number = np.zeros(len(order), np.int64)
    number[order] = (np.arange(len(order)) - np.repeat(first, count)) * np.repeat(alike[of_code], count)
    return number
