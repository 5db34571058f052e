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
