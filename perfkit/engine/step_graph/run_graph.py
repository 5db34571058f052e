"""The graph of a run's steps, from the graphs of its ranks (metrics.md section 16)."""

from collections.abc import Sequence, Set
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.engine.ranks.matching import MatchedCollectives
from perfkit.engine.runs.rank_reports import RankGraphs, Ranks
from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.step_graph.join import Member, common_steps, join_ranks
from perfkit.records.common import Observation
from perfkit.records.cross_rank import HostClock
from perfkit.records.rank import RankReport


class RunGraph(NamedTuple):
    """The graph, or why there is none."""

    graphs: tuple[StepGraph, ...]
    """Of all recordings of the run, first that of the middle one; empty if there is none."""
    reason: Literal["mixed_jobs", "unranked", "different_steps"] | None
    """Why there is no graph."""
    unaligned: list[int]
    """Ranks that are left out because nothing links their clocks to the others'."""

    @property
    def graph(self) -> StepGraph | None:
        """The graph of the middle recording."""
        return self.graphs[0] if self.graphs else None

    def findings(self, ranks: Sequence[RankReport]) -> list[Observation]:
        """Return why a run with known ranks has no critical path; where they are unknown, that is a finding already."""
        if self.reason is None or all(rank.rank is None for rank in ranks):
            return []
        return [Observation("critical_path_unknown", {"reason": self.reason})]


def build_run_graph(
    ranks: Ranks,
    matched: MatchedCollectives | None,
    clocks: Sequence[HostClock],
    slow: NDArray[np.float64] | None,
) -> RunGraph:
    """Return the graph of the steps that the graphs of all ranks have.

    Of ranks with several traces, those with steps that all ranks have count, each by itself.

    Args:
        matched: their collectives; None without known ranks.
        slow: as in `join_ranks`.
    """
    unaligned = sorted(rank for clock in clocks if clock.offset_ns is None for rank in clock.ranks)
    if ranks.mixed:
        return RunGraph((), "mixed_jobs", [])
    graphs = {rank: own for rank, own in ranks.graphs.items() if rank not in unaligned}
    if not graphs:
        return RunGraph((), "unranked", unaligned)
    recorded = [{step for graph in own.graphs for step in graph.steps} for own in graphs.values()]
    common = set.intersection(*recorded)
    found = []
    for recording in next(iter(graphs.values())).graphs:
        if own_steps := common.intersection(recording.steps):
            members = {rank: _member(own, own_steps) for rank, own in graphs.items()}
            if steps := common_steps(members.values()):
                found.append(join_ranks(members, steps, matched if len(members) > 1 else None, clocks, slow))
                common -= set(steps)
    if not found:
        return RunGraph((), "different_steps", unaligned)
    middle = found.pop(len(found) // 2)
    return RunGraph((middle, *found), None, unaligned)


def _member(own: RankGraphs, steps: Set[int | None]) -> Member:
    place = next(place for place, graph in enumerate(own.graphs) if not steps.isdisjoint(graph.steps))
    return Member(own.graphs[place], own.first_call[place])
