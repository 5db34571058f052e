"""Find what most of a run's waiting for batches was spent on (metrics.md section 24)."""

from collections.abc import Sequence

from perfkit.engine.runs.loading_culprits import slow_samples, slow_worker, slowest_worker
from perfkit.records.aggregate import MAJORITY
from perfkit.records.facts import Fact, Facts, fact
from perfkit.records.per_rank.loading import WAIT_CAUSES, RankLoading, WaitCause
from perfkit.records.rank import RankReport


def main_cause(ranks: Sequence[RankReport]) -> tuple[WaitCause, Fact] | None:
    """Return the cause of most of the waiting, and with who; None if none has half, or causes are unknown."""
    known = [(rank, rank.loading) for rank in ranks if rank.loading is not None]
    totals = {cause: sum(getattr(loading.waits_ns, cause) for _, loading in known) for cause in WAIT_CAUSES}
    whole = sum(totals.values())
    cause = max(WAIT_CAUSES, key=lambda name: totals[name])
    if cause == "other" or not whole or totals[cause] < MAJORITY * whole:
        return None
    named = cause in ("slow_worker", "slow_sample")
    what = _culprit(cause, known, several=len(ranks) > 1) if named else (fact(f"load_{cause}"),)
    return cause, fact("share_of_it", share=totals[cause] / whole, what=what)


def _culprit(cause: WaitCause, known: Sequence[tuple[RankReport, RankLoading]], *, several: bool) -> Facts:
    rank, loading = max(known, key=lambda one: getattr(one[1].waits_ns, cause))
    number = rank.rank if several else None
    if cause == "slow_worker":
        also = sum(bool(one.slow_workers) for _, one in known)
        return fact("for"), slow_worker(slowest_worker(loading, also, len(known)), number)
    samples = loading.slow_samples
    what = slow_samples(samples[0] if samples else None, len(samples) - 1)
    return fact("for"), what, *(() if number is None else (fact("on_rank", rank=number),))
