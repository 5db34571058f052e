"""Predict the changes that recommendations are about, for the report of a run."""

from collections.abc import Iterator
from typing import Final

from perfkit.analysis.step_graph.graph import StepGraph
from perfkit.errors import UsageError
from perfkit.schema.aggregate import exposed_sums, merge_idle
from perfkit.schema.per_rank.idle import CAUSES
from perfkit.schema.per_run.whatif import PredictedSaving
from perfkit.schema.run import RunReport
from perfkit.whatif.changes import NO_INPUT, NO_SYNCHRONISATION, free_transfers, healthy_ranks, no_idle
from perfkit.whatif.explained import find_unexplained
from perfkit.whatif.predict import predict_saving, replay_unchanged

_MOST_NODES: Final = 500_000
"""Larger graphs are not replayed for a report: a replay takes a second per million nodes, and there are several."""
_MIN_SHARE: Final = 0.05
"""Share of the time from which a category is tried: recommendations are not about less."""


def predicted_savings(graph: StepGraph, run: RunReport) -> list[PredictedSaving]:
    """Return what changes would save per step; those that do not apply to the run are left out.

    Args:
        graph: the graph of the run's steps.
        run: the report of the run.
    """
    if len(graph.nodes.start) > _MOST_NODES or len(graph.steps) < 2:
        return []
    tried = list(dict.fromkeys(_changes(run, explained=find_unexplained(graph, run) is None)))
    if not tried:
        return []
    before = replay_unchanged(graph)
    found = []
    for change in tried:
        try:
            texts = [change] if change.startswith("idle:") else change.split()
            saving_ns = predict_saving(graph, run, before, texts)
        except UsageError:  # does not apply to this run
            continue
        found.append(PredictedSaving(change=change, saving_ns=saving_ns))
    return found


def _changes(run: RunReport, *, explained: bool) -> Iterator[str]:
    """Yield what to try; nothing that makes waiting for collectives shorter, unless the graph explains this waiting."""
    steps = [step for rank in run.ranks for step in rank.steps]
    wall_ns = sum(step.wall_ns for step in steps)
    large = {name for name, time_ns in exposed_sums(steps).items() if time_ns >= _MIN_SHARE * wall_ns}
    across = run.cross_rank if explained else None
    if across and across.stragglers and across.stragglers_gain_ns > 0:
        yield healthy_ranks(row.rank for row in across.stragglers)
    if explained and "communication" in large and run.dimensions:
        for row in run.dimensions.rows:
            yield free_transfers(row.dimension)
    if "data_loading" in large:
        yield NO_INPUT
    if "overhead" in large:
        yield from _idle(run)


def _idle(run: RunReport) -> Iterator[str]:
    idle = merge_idle(run.ranks)
    if not idle.causes:
        return
    cause = max(CAUSES, key=lambda name: sum(row.total_ns for row in idle.causes if row.cause == name))
    if cause in ("launch_bound", "unknown"):  # no recommendation is about these pauses alone
        return
    yield NO_SYNCHRONISATION if cause == "synchronisation" else no_idle(cause)
    yield no_idle(next(row.detail for row in idle.causes if row.cause == cause))
