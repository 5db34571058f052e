"""What late ranks cost: what the replayed steps gain without their delays (metrics.md section 5)."""

from collections.abc import Sequence
from typing import NamedTuple

from perfkit.engine.ranks.delay import RankDelay
from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.whatif.altered import gained_ns, steps_ns, unaltered
from perfkit.engine.whatif.effects.ranks import healthy
from perfkit.engine.whatif.unexplained import least_saving_ns
from perfkit.engine.whatif.values import MOST_REPLAYED
from perfkit.records.rank import RankReport


class Gains(NamedTuple):
    """By how much the mean step gets shorter (ns)."""

    of_each: dict[int, int]
    """If one rank alone is not late; without those of a run that is too large to be replayed for each."""
    of_all: int | None
    """If none is; None if unknown."""
    of_single: int
    """By how much more if none is late in single steps, either."""


def replayed_gains(
    graphs: Sequence[StepGraph],
    late: Sequence[RankDelay],
    single: Sequence[RankDelay],
    compared: Sequence[Sequence[int]],
    ranks: Sequence[RankReport],
) -> Gains:
    """Return the gains without the delays of ranks; not that they are nothing, if the graph lacks what waits.

    Args:
        graphs: of the run's steps, at least one.
        late: the delays of more than single steps, one of each late rank.
        single: those of single steps.
        compared: the ranks that can be compared with each other; empty if all can.
        ranks: the reports of all ranks.
    """
    before = [unaltered(graph) for graph in graphs]
    step_ns = steps_ns(before)
    none_late = [healthy(state, late, compared) for state in before]
    none_ns = steps_ns(none_late)
    of_all = max(0, round(float((step_ns - none_ns).mean())))
    of_single = gained_ns(none_ns, [healthy(state, single, compared) for state in none_late]) if single else 0
    nodes = sum(len(graph.nodes.start) for graph in graphs)
    is_lacking = not {one.rank for one in late} <= set(graphs[0].ranks)
    if not of_all and (is_lacking or least_saving_ns(graphs[0], ranks, len(ranks))):
        return Gains({}, None, of_single)
    if len(late) == 1:
        return Gains({late[0].rank: of_all}, of_all, of_single)
    alone = late if nodes * len(late) <= MOST_REPLAYED else ()
    of_each = {one.rank: gained_ns(step_ns, [healthy(state, [one], compared) for state in before]) for one in alone}
    return Gains(of_each, of_all, of_single)
