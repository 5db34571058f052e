"""Name what most of a run's waiting for batches was spent on (metrics.md section 24)."""

from collections.abc import Sequence
from typing import Final

from perfkit.analysis.per_rank.loading.sentences import WAIT_WORDS, also_slow, slow_samples_clause, slow_worker_clause
from perfkit.schema.per_rank.loading import WAIT_CAUSES, RankLoading, WaitCause
from perfkit.schema.rank import RankReport
from perfkit.util.formatting import whole_percent

_MAJORITY: Final = 0.5


def main_cause(ranks: Sequence[RankReport]) -> tuple[WaitCause, str] | None:
    """Return the cause of most of the waiting, in words and with who; None if none has half, or causes are unknown."""
    known = [(rank, rank.loading) for rank in ranks if rank.loading is not None]
    totals = {cause: sum(getattr(loading.waits_ns, cause) for _, loading in known) for cause in WAIT_CAUSES}
    whole = sum(totals.values())
    cause = max(WAIT_CAUSES, key=lambda name: totals[name])
    if cause == "other" or not whole or totals[cause] < _MAJORITY * whole:
        return None
    share = whole_percent(totals[cause] / whole)
    if cause == "slow_worker":
        return cause, f"{share} of it {_slow_workers(known, several=len(ranks) > 1)}"
    if cause == "slow_sample":
        return cause, f"{share} of it {_slow_samples(known, several=len(ranks) > 1)}"
    return cause, f"{share} of it {WAIT_WORDS[cause]}"


def _slow_workers(known: Sequence[tuple[RankReport, RankLoading]], *, several: bool) -> str:
    rank, loading = max(known, key=lambda one: one[1].waits_ns.slow_worker)
    where = f" of rank {rank.rank}" if several and rank.rank is not None else ""
    also = sum(bool(one.slow_workers) for _, one in known)
    return f"for {slow_worker_clause(loading, where)}{also_slow(also, len(known))}"


def _slow_samples(known: Sequence[tuple[RankReport, RankLoading]], *, several: bool) -> str:
    rank, loading = max(known, key=lambda one: one[1].waits_ns.slow_sample)
    where = f" on rank {rank.rank}" if several and rank.rank is not None else ""
    return f"for {slow_samples_clause(loading)}{where}"
