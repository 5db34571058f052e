"""The worker or the sample that waits for batches are spent on (metrics.md section 24)."""

from perfkit.records.facts import Fact, Facts, fact
from perfkit.records.per_rank.loading import RankLoading, SlowSample, SlowWorker


def slowest_worker(loading: RankLoading, ranks: int, of: int) -> SlowWorker:
    """Return the slowest worker of a rank that has a slow one.

    Args:
        loading: of the rank.
        ranks: how many ranks have a slow worker.
        of: number of all ranks.
    """
    slow = max((row for row in loading.workers if row.worker in loading.slow_workers), key=lambda row: row.median_ns)
    others = sorted(row.median_ns for row in loading.workers if row.worker not in loading.slow_workers)
    usual_ns = others[len(others) // 2] if others else None
    return SlowWorker(worker=slow.worker, ns=slow.median_ns, usual_ns=usual_ns, ranks=ranks, of=of)


def slow_worker(found: SlowWorker, rank: int | None = None) -> Fact:
    """Return a slow worker, and how long its batches take; of which rank, if that is to be named."""
    usual = () if found.usual_ns is None else (fact("usual_batch", ns=found.usual_ns),)
    where = () if rank is None else (fact("of_rank", rank=rank),)
    also: Facts = ()
    if found.ranks > 1:
        all_slow = found.ranks == found.of
        also = (fact("all_slow", of=found.of) if all_slow else fact("also_slow", ranks=found.ranks, of=found.of),)
    return fact("slow_worker", worker=found.worker, where=where, ns=found.ns, usual=usual, also=also)


def slow_samples(slowest: SlowSample | None, others: int) -> Fact:
    """Return the slowest sample that a step waited for, and how many others are slow."""
    if slowest is None:
        return fact("slow_samples")
    more = (fact("and_more", count=others),) if others > 0 else ()
    return fact("slow_sample", index=slowest.index, ns=slowest.ns, more=more)
