"""What late ranks cost: what the replayed steps gain without their lags (metrics.md section 5)."""

from collections.abc import Sequence
from typing import NamedTuple

from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.whatif.altered import gained_ns, steps_ns, unaltered
from perfkit.engine.whatif.effects.ranks import healthy
from perfkit.engine.whatif.values import MOST_REPLAYED


class Gains(NamedTuple):
    """By how much the mean step gets shorter (ns)."""

    of_each: dict[int, int]
    """If one rank alone is not late; without those of a run that is too large to be replayed for each."""
    of_all: int
    """If none is."""


def replayed_gains(graphs: Sequence[StepGraph], late: Sequence[int], compared: Sequence[Sequence[int]] = ()) -> Gains:
    """Return the gains without late ranks.

    Args:
        graphs: of the run's steps, at least one.
        late: the late ranks.
        compared: the ranks that can be compared with each other; empty if all can.
    """
    before = [unaltered(graph) for graph in graphs]
    step_ns = steps_ns(before)

    def gain_ns(of: Sequence[int]) -> int:
        return gained_ns(step_ns, [healthy(state, of, compared) for state in before])

    of_all = gain_ns(late)
    if len(late) == 1:
        return Gains({late[0]: of_all}, of_all)
    nodes = sum(len(graph.nodes.start) for graph in graphs)
    return Gains({rank: gain_ns([rank]) for rank in late if nodes * len(late) <= MOST_REPLAYED}, of_all)
