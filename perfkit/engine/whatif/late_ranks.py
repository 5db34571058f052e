"""What late ranks cost: what the replayed steps gain without their lags (metrics.md section 5)."""

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.whatif.altered import unaltered
from perfkit.engine.whatif.effects.ranks import healthy
from perfkit.engine.whatif.unexplained import least_saving_ns
from perfkit.records.rank import RankReport

MOST_REPLAYED: Final = 4_000_000
"""Nodes that are replayed for one question of a report: a second per million."""


class Gains(NamedTuple):
    """By how much the mean step gets shorter (ns)."""

    of_each: dict[int, int]
    """If one rank alone is not late."""
    of_all: int
    """If none is."""


def replayed_gains(
    graph: StepGraph, ranks: Sequence[RankReport], late: Sequence[int], steps: Collection[int]
) -> Gains | None:
    """Return the gains without late ranks; None where the graph does not tell.

    It lacks some of the steps, is too large to be replayed so often, or leaves too much communication unexplained.

    Args:
        graph: the graph of all ranks of the run.
        ranks: their reports.
        late: the late ranks.
        steps: numbers of the steps in which these are late.
    """
    if not set(steps) <= set(graph.steps) or len(graph.nodes.start) * (2 + len(late)) > MOST_REPLAYED:
        return None
    before = unaltered(graph)
    ends = before.step_ends()

    def gain_ns(of: Sequence[int]) -> int:
        gained = np.diff(ends) - np.diff(healthy(before, of).step_ends())
        return max(0, round(float(gained.mean())))

    of_all = gain_ns(late)
    if of_all < least_saving_ns(graph, ranks, len(ranks)):
        return None
    return Gains({rank: gain_ns([rank]) if len(late) > 1 else of_all for rank in late}, of_all)
