"""Name what most of a run's waiting for batches was spent on (metrics.md section 24)."""

from collections.abc import Sequence
from typing import Final

from perfkit.schema.per_rank.loading import WAIT_CAUSES, RankLoading, WaitCause
from perfkit.schema.rank import RankReport
from perfkit.util.formatting import duration, whole_percent

_MAJORITY: Final = 0.5
_WORDS: Final[dict[WaitCause, str]] = {
    "reading": "waiting for samples (in storage, or for a free core)",
    "transforming": "computing samples (decoding, transforms)",
    "collating": "collating batches",
    "transfer": "handing finished batches over",
    "workers_busy": "workers that still fetch the batches before: too few of them",
}


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
    return cause, f"{share} of it {_WORDS[cause]}"


def _slow_workers(known: Sequence[tuple[RankReport, RankLoading]], *, several: bool) -> str:
    rank, loading = max(known, key=lambda one: one[1].waits_ns.slow_worker)
    slow = max((row for row in loading.workers if row.worker in loading.slow_workers), key=lambda row: row.median_ns)
    others = [row.median_ns for row in loading.workers if row.worker not in loading.slow_workers]
    usual = f", against {duration(sorted(others)[len(others) // 2])} of the others" if others else ""
    where = f" of rank {rank.rank}" if several and rank.rank is not None else ""
    return f"for worker {slow.worker}{where}, whose batches take {duration(slow.median_ns)}{usual}"


def _slow_samples(known: Sequence[tuple[RankReport, RankLoading]], *, several: bool) -> str:
    rank, loading = max(known, key=lambda one: one[1].waits_ns.slow_sample)
    where = f" on rank {rank.rank}" if several and rank.rank is not None else ""
    if not loading.slow_samples:
        return f"for single slow samples{where}"
    first = loading.slow_samples[0]
    more = f" and {len(loading.slow_samples) - 1} more" if len(loading.slow_samples) > 1 else ""
    return f"for sample {first.index}, which takes {duration(first.ns)}{more}{where}"
