"""How much of the ranks' exposed communication the graph of steps explains, as time in which threads wait for it."""

from typing import Final, NamedTuple

import numpy as np

from perfkit.analysis.step_graph.graph import COMPLETION, StepGraph
from perfkit.schema.run import RunReport
from perfkit.whatif.awaited import joined_points, nodes_before

_LEAST_SHARE: Final = 0.05
"""Share of a rank's time from which its exposed communication must be explained."""
_MOST_MISSING: Final = 0.2


class Unexplained(NamedTuple):
    """The rank with the least of its exposed communication explained."""

    rank: int | None
    share: float
    """What the graph explains of its exposed communication."""


def find_unexplained(graph: StepGraph, run: RunReport) -> Unexplained | None:
    """Return the rank whose exposed communication the graph explains least; None if it does so for all.

    Without a device, no event tells for which collective a thread waits: where none ends with a pause, the graph has
    no wait, and a replay believes that the thread was busy. Ranks with a device are not looked at.
    """
    waited_ns = _waited_ns(graph)
    numbers = set(graph.steps)
    found = []
    for report in run.ranks:
        steps = [step for step in report.steps if step.step in numbers] if report.device == "cpu" else []
        exposed_ns = sum(step.exposed_ns.communication for step in steps)
        if exposed_ns and exposed_ns >= _LEAST_SHARE * sum(step.wall_ns for step in steps):
            rank = graph.ranks[0] if report.rank is None else report.rank
            found.append(Unexplained(report.rank, waited_ns.get(rank, 0) / exposed_ns))
    least = min(found, key=lambda one: one.share, default=None)
    return least if least is not None and least.share < 1 - _MOST_MISSING else None


def _waited_ns(graph: StepGraph) -> dict[int, int]:
    """Return how long the main thread of each rank waits for collectives that it has begun."""
    nodes = graph.nodes
    waits = graph.edges.where(graph.edges.kind == COMPLETION)
    before, joined = nodes_before(graph)[waits.target], joined_points(graph)[waits.source]
    known = (before >= 0) & (joined >= 0)
    target = waits.target[known]
    waited = nodes.start[target] - np.maximum(nodes.end[before[known]], nodes.end[joined[known]])
    longest = np.zeros(len(nodes.start), np.int64)
    np.maximum.at(longest, target, waited)  # of several that end with one wait, the first begun
    chosen = np.unique(target)
    return {rank: int(longest[chosen[nodes.rank[chosen] == rank]].sum()) for rank in graph.ranks}
