"""What the graph of steps does not explain: a replay does not know what it may cost."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.step_graph.graph import ARRIVAL, COMPLETION, StepGraph
from perfkit.engine.whatif.awaited import joined_points, nodes_before
from perfkit.records.rank import RankReport

_NEGLIGIBLE: Final = 0.01
"""Share of a rank's step up to which it does not matter that the graph does not explain its communication."""
_MOST_MISSING: Final = 0.2
"""Share of a predicted saving that may be missing, for the same reason."""


class Unexplained(NamedTuple):
    """The rank with the most exposed communication that the graph does not explain."""

    rank: int | None
    per_step_ns: float
    """Its mean per step."""
    of_step: float
    """Its share of the rank's mean step."""


def find_unexplained(graph: StepGraph, ranks: Sequence[RankReport], world_size: int) -> Unexplained | None:
    """Return the rank of which the graph explains least; None if it explains all exposed communication.

    Without a device, no event tells for which collective a thread waits: where none ends with a pause, the graph has
    no wait, and a replay believes that the thread was busy. Where all ranks are in the graph, waits for what has no
    counterpart there are not explained either: a replay believes that it was a transfer. Ranks with a device are not
    looked at.
    """
    graph = graph.recorded or graph  # the reports are of the steps as they were recorded
    waited_ns = _waited_ns(graph, met_only=1 < len(graph.ranks) == world_size)
    numbers = set(graph.steps)
    found = []
    for report in ranks:
        steps = [step for step in report.steps if step.step in numbers] if report.device == "cpu" else []
        rank = graph.ranks[0] if report.rank is None else report.rank
        rest_ns = sum(step.exposed_ns.communication for step in steps) - waited_ns.get(rank, 0)
        if rest_ns > 0:
            of_step = rest_ns / sum(step.wall_ns for step in steps)
            found.append(Unexplained(report.rank, rest_ns / len(steps), of_step))
    return max(found, key=lambda one: one.per_step_ns, default=None)


def _waited_ns(graph: StepGraph, *, met_only: bool) -> dict[int, int]:
    """Return how long the main thread of each rank waits for collectives that it has begun.

    Args:
        graph: the graph of some steps.
        met_only: only for those that are matched with another rank's.
    """
    nodes = graph.nodes
    waits = graph.edges.where(graph.edges.kind == COMPLETION)
    before, joined = nodes_before(graph)[waits.target], joined_points(graph)[waits.source]
    known = (before >= 0) & (joined >= 0)
    if met_only:
        arrivals = graph.edges.where(graph.edges.kind == ARRIVAL)
        known &= np.isin(waits.source, arrivals.target) | np.isin(joined, arrivals.source)
    target = waits.target[known]
    waited = nodes.start[target] - np.maximum(nodes.end[before[known]], nodes.end[joined[known]])
    longest = np.zeros(len(nodes.start), np.int64)
    np.maximum.at(longest, target, waited)  # of several that end with one wait, the first begun
    chosen = np.unique(target)
    return {rank: int(longest[chosen[nodes.rank[chosen] == rank]].sum()) for rank in graph.ranks}


def least_saving_ns(graph: StepGraph, ranks: Sequence[RankReport], world_size: int) -> float:
    """Return from which saving per step on, in ns, a replay is believed about waiting.

    What the graph does not explain might be saved, too.
    """
    unexplained = find_unexplained(graph, ranks, world_size)
    if unexplained is None or unexplained.of_step < _NEGLIGIBLE:
        return 0.0
    return unexplained.per_step_ns / _MOST_MISSING
