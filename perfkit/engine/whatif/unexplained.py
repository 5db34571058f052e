"""What the graph of steps does not explain: a replay does not know what it may cost."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.kinds.classify import rows_by_key
from perfkit.engine.step_graph.graph import ARRIVAL, COMPLETION, COMPUTE, LAUNCH, MEMCPY, StepGraph
from perfkit.engine.whatif.awaited import joined_points, nodes_before
from perfkit.records.rank import RankReport
from perfkit.trace.intervals import measure, union

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
    counterpart there are not explained either: a replay believes that it was a transfer. On a device, it is not
    explained that work begins later than all that it is known to wait for, while a collective runs.
    """
    graph = graph.recorded or graph  # the reports are of the steps as they were recorded
    waited_ns = _waited_ns(graph, met_only=1 < len(graph.ranks) == world_size)
    delayed_ns = _delayed_ns(graph)
    numbers = set(graph.steps)
    found = []
    for report in ranks:
        steps = [step for step in report.steps if step.step in numbers]
        rank = graph.ranks[0] if report.rank is None else report.rank
        exposed_ns = sum(step.exposed_ns.communication for step in steps)
        on_device = report.device != "cpu"
        rest_ns = min(exposed_ns, delayed_ns.get(rank, 0)) if on_device else exposed_ns - waited_ns.get(rank, 0)
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


def _delayed_ns(graph: StepGraph) -> dict[int, int]:
    """Return by how much work of each rank's device begins later than what it waits for lets it, during collectives."""
    nodes, edges = graph.nodes, graph.edges
    rank = nodes.rank[edges.target]
    launches = rows_by_key(rank, np.flatnonzero(edges.kind == LAUNCH))
    decides = np.append(True, edges.target[1:] != edges.target[:-1])
    decides &= np.isin(nodes.kind[edges.target], (COMPUTE, MEMCPY))
    joined = joined_points(graph)
    transfers = rows_by_key(nodes.rank, np.flatnonzero(joined >= 0))
    found = {}
    for number, begun in rows_by_key(rank, np.flatnonzero(decides)).items():
        own = transfers.get(number, begun[:0])
        running = union(nodes.end[joined[own]], nodes.end[own])
        usual_ns = int(np.median(edges.lag_ns[launches[number]])) if number in launches else 0
        start = nodes.start[edges.target[begun]]
        ready = np.minimum(start - edges.lag_ns[begun] + usual_ns, start)
        found[number] = int(measure(running, ready, start).sum())
    return found


def least_saving_ns(graph: StepGraph, ranks: Sequence[RankReport], world_size: int) -> float:
    """Return from which saving per step on, in ns, a replay is believed about waiting.

    What the graph does not explain might be saved, too.
    """
    unexplained = find_unexplained(graph, ranks, world_size)
    if unexplained is None or unexplained.of_step < _NEGLIGIBLE:
        return 0.0
    return unexplained.per_step_ns / _MOST_MISSING
