"""Predict the changes that recommendations are about, for the report of a run.

As far as the graph of steps explains exposed communication.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from perfkit.engine.losses.context import MIN_SHARE
from perfkit.engine.step_graph.graph import StepGraph
from perfkit.engine.whatif.change import ChangeError
from perfkit.engine.whatif.changes import (
    HEALTHY_NETWORK,
    NO_COPIES,
    NO_INPUT,
    NO_SYNCHRONISATION,
    REDUCED_ONCE,
    free_transfers,
    healthy_ranks,
    no_idle,
)
from perfkit.engine.whatif.predict import make_changes, replay_unchanged
from perfkit.engine.whatif.unexplained import least_saving_ns
from perfkit.engine.whatif.values import MOST_REPLAYED
from perfkit.records.cross_rank import all_ranks
from perfkit.records.per_rank.idle import CAUSES
from perfkit.records.per_run.ledger import LedgerCause, LedgerRow
from perfkit.records.per_run.whatif import PredictedSaving
from perfkit.records.run import RunReport

_NO_CHANGE: Final = ("launch_bound", "other_device", "unknown")
"""Causes of which no recommendation is about their pauses alone."""


def predicted_savings(graphs: Sequence[StepGraph], run: RunReport) -> list[PredictedSaving]:
    """Return what changes would save per step; those that do not apply to the run are left out.

    Nothing is predicted if collectives are matched that do not belong together: ranks then wait for the wrong ones.

    Args:
        graphs: of the run's steps, at least one.
        run: the report of the run.
    """
    found = list(_known(run))
    doubtful = any(finding.code == "suspect_matches" for finding in run.findings)
    transfers = list(_changes_of_transfers(run))
    tried = list(dict.fromkeys([*transfers, *_changes_of_own_time(run)]))
    nodes, steps = sum(len(one.nodes.start) for one in graphs), sum(len(one.steps) for one in graphs)
    if doubtful or not tried or nodes * (1 + len(tried)) > MOST_REPLAYED or steps < 2:
        return found
    before, least_ns = replay_unchanged(graphs), least_saving_ns(graphs[0], run.ranks, run.world_size)
    for change in tried:
        try:
            saving_ns = make_changes(graphs, run, [change]).saving_ns(before)
        except ChangeError:  # does not apply to this run
            continue
        if saving_ns >= least_ns or change not in transfers:
            found.append(PredictedSaving(change=change, saving_ns=saving_ns))
    return found


def _known(run: RunReport) -> Iterator[PredictedSaving]:
    """Yield what was predicted for late ranks and slow transfers already."""
    across = run.cross_rank
    if across and (gain_ns := (across.stragglers_gain_ns or 0) + (across.one_off_gain_ns or 0)):
        change = healthy_ranks({*(row.rank for row in across.stragglers), *all_ranks(across.one_off_stragglers)})
        yield PredictedSaving(change=change, saving_ns=float(gain_ns))
    if across and across.slow_transfers_gain_ns:
        yield PredictedSaving(change=HEALTHY_NETWORK, saving_ns=float(across.slow_transfers_gain_ns))


def _changes_of_transfers(run: RunReport) -> Iterator[str]:
    """Yield which changes to try that make transfers shorter."""
    if "communication" in _large(run) and run.dimensions:
        for row in run.dimensions.rows:
            yield free_transfers(row.dimension)
        yield REDUCED_ONCE


def _changes_of_own_time(run: RunReport) -> Iterator[str]:
    """Yield which other changes to try."""
    for cause, row in _large(run).items():
        if cause == "data_loading":
            yield NO_INPUT
        elif cause == "memcpy":
            yield NO_COPIES
        elif cause == "synchronisation":
            yield NO_SYNCHRONISATION
        elif cause in CAUSES and cause not in _NO_CHANGE:
            yield no_idle(cause)
            if row.name:
                yield no_idle(row.name)


def _large(run: RunReport) -> dict[LedgerCause, LedgerRow]:
    """Return the rows of the ledger that recommendations may be about."""
    rows = run.ledger.rows if run.ledger else []
    return {row.cause: row for row in rows if row.share >= MIN_SHARE}
