"""Sentences and words for what waits for batches were spent on (metrics.md section 24)."""

from typing import Final

from perfkit.schema.per_rank.loading import RankLoading, WaitCause
from perfkit.util.formatting import duration

WAIT_WORDS: Final[dict[WaitCause, str]] = {
    "reading": "waiting for samples (in storage, or for a free core)",
    "transforming": "computing samples (decoding, transforms)",
    "collating": "collating batches",
    "transfer": "handing finished batches over (unpickling, pinning, or waiting for a free core)",
    "workers_busy": "workers that still fetch the batches before: too few of them",
}


def slow_worker_clause(loading: RankLoading, where: str) -> str:
    """Return the slowest worker of a rank that has a slow one, and how long its batches take.

    Args:
        loading: of the rank.
        where: what follows the worker's number, such as ` of rank 3`.
    """
    slow = max((row for row in loading.workers if row.worker in loading.slow_workers), key=lambda row: row.median_ns)
    others = [row.median_ns for row in loading.workers if row.worker not in loading.slow_workers]
    usual = f", against {duration(sorted(others)[len(others) // 2])} of the others" if others else ""
    return f"worker {slow.worker}{where}, whose batches take {duration(slow.median_ns)}{usual}"


def slow_samples_clause(loading: RankLoading) -> str:
    """Return the slowest sample that a step waited for."""
    if not loading.slow_samples:
        return "single slow samples"
    first = loading.slow_samples[0]
    more = f" and {len(loading.slow_samples) - 1} more" if len(loading.slow_samples) > 1 else ""
    return f"sample {first.index}, which took {duration(first.ns)}{more}"


def also_slow(ranks: int, of: int) -> str:
    """Return a clause with how many ranks have a slow worker; empty if it is only the one that is named."""
    if ranks < 2:
        return ""
    return f" (all {of} ranks have such a worker)" if ranks == of else f" ({ranks} of {of} ranks have such a worker)"
