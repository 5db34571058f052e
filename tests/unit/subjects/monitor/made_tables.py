"""Tables of steps whose truth is known."""

import numpy as np
from numpy.typing import NDArray

from perfkit.records.per_run.monitor import MonitorSummary
from perfkit.subjects.monitor.summarize import LogFacts, summarize
from perfkit.subjects.monitor.table import StepTable, align, rank_steps
from tests.support.monitor.made_runs import records

FACTS = LogFacts(1, 0, None, None, None, None)


def table_of(own: NDArray[np.float64], **columns: NDArray[np.float64]) -> StepTable:
    """Return the table of ranks with these own times, all waiting for the slowest; `columns` replace what is logged."""
    made = {rank: records(own, rank) for rank in range(len(own))}
    for name, values in columns.items():
        for rank, row in enumerate(np.broadcast_to(values, own.shape)):
            made[rank][name] = row.astype(made[rank][name].dtype)
    table = align({rank: rank_steps(one, "cpu") for rank, one in made.items()})
    assert table is not None
    return table


def summary_of(own: NDArray[np.float64], **columns: NDArray[np.float64]) -> MonitorSummary:
    return summarize(table_of(own, **columns), FACTS)


def is_quiet(found: MonitorSummary) -> bool:
    return not (found.changes or found.stalls or found.slow_steps or found.late_ranks)
