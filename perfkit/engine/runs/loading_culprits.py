"""Name the worker or the sample that waits for batches are spent on (metrics.md section 24)."""

from perfkit.records.facts import Fact, Facts, fact
from perfkit.records.per_rank.loading import RankLoading


def slow_worker(loading: RankLoading, ranks: int, of: int, rank: int | None = None) -> Fact:
    """Return the slowest worker of a rank that has a slow one, and how long its batches take.

    Args:
        loading: of the rank.
        ranks: how many ranks have a slow worker.
        of: number of all ranks.
        rank: its number, if it is to be named.
    """
    slow = max((row for row in loading.workers if row.worker in loading.slow_workers), key=lambda row: row.median_ns)
    others = sorted(row.median_ns for row in loading.workers if row.worker not in loading.slow_workers)
    usual = (fact("usual_batch", ns=others[len(others) // 2]),) if others else ()
    where = () if rank is None else (fact("of_rank", rank=rank),)
    also: Facts = (
        () if ranks < 2 else (fact("all_slow", of=of) if ranks == of else fact("also_slow", ranks=ranks, of=of),)
    )
    return fact("slow_worker", worker=slow.worker, where=where, ns=slow.median_ns, usual=usual, also=also)


def slow_samples(loading: RankLoading) -> Fact:
    """Return the slowest sample that a step waited for."""
    if not loading.slow_samples:
        return fact("slow_samples")
    first = loading.slow_samples[0]
    more = (fact("and_more", count=len(loading.slow_samples) - 1),) if len(loading.slow_samples) > 1 else ()
    return fact("slow_sample", index=first.index, ns=first.ns, more=more)
