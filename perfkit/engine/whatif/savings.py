"""Predict the changes that recommendations are about, for the report of a run.

As far as the graph of steps explains exposed communication.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.step_graph.graph import ARRIVAL, COMPLETION, StepGraph
from perfkit.engine.whatif.awaited import joined_points, nodes_before
from perfkit.engine.whatif.changes import NO_INPUT, NO_SYNCHRONISATION, free_transfers, healthy_ranks, no_idle
from perfkit.engine.whatif.predict import predict_saving, replay_unchanged
from perfkit.errors import UsageError
from perfkit.records.aggregate import exposed_sums, merge_idle
from perfkit.records.per_rank.idle import CAUSES
from perfkit.records.per_run.whatif import PredictedSaving
from perfkit.records.run import RunReport


class Unexplained(NamedTuple):
    """The rank with the most exposed communication that the graph does not explain."""

    rank: int | None
    per_step_ns: float
    """Its mean per step."""
    of_step: float
    """Its share of the rank's mean step."""


def find_unexplained(graph: StepGraph, run: RunReport) -> Unexplained | None:
    """Return the rank of which the graph explains least; None if it explains all exposed communication.

    Without a device, no event tells for which collective a thread waits: where none ends with a pause, the graph has
    no wait, and a replay believes that the thread was busy. Where all ranks are in the graph, waits for what has no
    counterpart there are not explained either: a replay believes that it was a transfer. Ranks with a device are not
    looked at.
    """
    waited_ns = _waited_ns(graph, met_only=1 < len(graph.ranks) == run.world_size)
    numbers = set(graph.steps)
    found = []
    for report in run.ranks:
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


_MOST_NODES: Final = 500_000
"""Larger graphs are not replayed for a report: a replay takes a second per million nodes, and there are several."""
_MIN_SHARE: Final = 0.05
"""Share of the time from which a category is tried: recommendations are not about less."""
_NEGLIGIBLE: Final = 0.01
"""Share of a rank's step up to which it does not matter that the graph does not explain its communication."""
_MOST_MISSING: Final = 0.2
"""Share of a predicted saving that may be missing, for the same reason."""


def predicted_savings(graph: StepGraph, run: RunReport) -> list[PredictedSaving]:
    """Return what changes would save per step; those that do not apply to the run are left out.

    Nothing is predicted if collectives are matched that do not belong together: ranks then wait for the wrong ones.

    Args:
        graph: the graph of the run's steps.
        run: the report of the run.
    """
    doubtful = any(finding.code == "suspect_matches" for finding in run.findings)
    if doubtful or len(graph.nodes.start) > _MOST_NODES or len(graph.steps) < 2:
        return []
    of_waiting = list(_changes_of_waiting(run))
    tried = list(dict.fromkeys([*of_waiting, *_changes_of_own_time(run)]))
    if not tried:
        return []
    before, least_ns = replay_unchanged(graph), _least_ns(graph, run)
    found = []
    for change in tried:
        try:
            texts = [change] if change.startswith("idle:") else change.split()
            saving_ns = predict_saving(graph, run, before, texts)
        except UsageError:  # does not apply to this run
            continue
        if saving_ns < least_ns and change in of_waiting:
            continue
        found.append(PredictedSaving(change=change, saving_ns=saving_ns))
    return found


def _least_ns(graph: StepGraph, run: RunReport) -> float:
    """Return from which saving per step on, in ns, a change of waiting is told.

    What the graph does not explain might be saved, too.
    """
    unexplained = find_unexplained(graph, run)
    if unexplained is None or unexplained.of_step < _NEGLIGIBLE:
        return 0.0
    return unexplained.per_step_ns / _MOST_MISSING


def _changes_of_waiting(run: RunReport) -> Iterator[str]:
    """Yield which changes to try that make waiting for collectives shorter."""
    across = run.cross_rank
    if across and across.stragglers and across.stragglers_gain_ns > 0:
        yield healthy_ranks(row.rank for row in across.stragglers)
    if "communication" in _large(run) and run.dimensions:
        for row in run.dimensions.rows:
            yield free_transfers(row.dimension)


def _changes_of_own_time(run: RunReport) -> Iterator[str]:
    """Yield which other changes to try."""
    large = _large(run)
    if "data_loading" in large:
        yield NO_INPUT
    if "overhead" in large:
        yield from _idle(run)


def _large(run: RunReport) -> set[str]:
    """Return the categories that take much of the time."""
    steps = [step for rank in run.ranks for step in rank.steps]
    wall_ns = sum(step.wall_ns for step in steps)
    return {name for name, time_ns in exposed_sums(steps).items() if time_ns >= _MIN_SHARE * wall_ns}


def _idle(run: RunReport) -> Iterator[str]:
    idle = merge_idle(run.ranks)
    if not idle.causes:
        return
    cause = max(CAUSES, key=lambda name: sum(row.total_ns for row in idle.causes if row.cause == name))
    if cause in ("launch_bound", "unknown"):  # no recommendation is about these pauses alone
        return
    yield NO_SYNCHRONISATION if cause == "synchronisation" else no_idle(cause)
    yield no_idle(next(row.detail for row in idle.causes if row.cause == cause))
