"""Name what a rank that is late in data loading waits for longer than the others (metrics.md section 24)."""

from collections.abc import Sequence
from statistics import median
from typing import Final

from msgspec.structs import replace

from perfkit.engine.runs.data_loading import slowest_worker
from perfkit.records.aggregate import MAJORITY
from perfkit.records.cross_rank import LateLoading, Straggler
from perfkit.records.per_rank.loading import WAIT_CAUSES, WaitCause
from perfkit.records.rank import RankReport

_UNNAMED: Final[tuple[WaitCause, ...]] = ("other",)


def name_load_causes(stragglers: Sequence[Straggler], ranks: Sequence[RankReport]) -> list[Straggler]:
    """Return the stragglers, those that are late in data loading with what for, if their batches tell.

    A cause is named if the rank waits longer for it than the ranks that are never late, by at least half of its mean
    lag; where there is none to compare with, because ranks take turns or all are late, if it is at least half of the
    rank's waiting, and of the mean lag.
    """
    by_rank = {rank.rank: rank for rank in ranks if rank.rank is not None and rank.loading is not None}
    late = {row.rank for row in stragglers}
    on_time = [rank for number, rank in by_rank.items() if number not in late]
    slow = sum(bool(rank.loading and rank.loading.slow_workers) for rank in ranks), len(ranks)
    return [
        replace(row, loading=_explained(row, by_rank[row.rank], [] if row.in_turns else on_time, slow))
        if row.category == "data_loading" and row.rank in by_rank and len(by_rank) == len(ranks)
        else row
        for row in stragglers
    ]


def _explained(
    row: Straggler, rank: RankReport, on_time: Sequence[RankReport], slow: tuple[int, int]
) -> LateLoading | None:
    own = _mean_waits(rank)
    usual = [_mean_waits(other) for other in on_time]
    longer = {name: own[name] - median([waits[name] for waits in usual] or [0.0]) for name in WAIT_CAUSES}
    cause = max(WAIT_CAUSES, key=lambda name: longer[name])
    mean_lag = row.in_category_ns * row.steps_late / row.steps
    least = max(mean_lag, 0.0 if usual else sum(own.values()))
    if cause in _UNNAMED or longer[cause] < MAJORITY * least or rank.loading is None:
        return None
    worker = slowest_worker(rank.loading, *slow) if cause == "slow_worker" and rank.loading.slow_workers else None
    samples = rank.loading.slow_samples if cause == "slow_sample" else []
    return LateLoading(
        cause=cause,
        worker=worker,
        sample=samples[0] if samples else None,
        more_samples=max(0, len(samples) - 1),
    )


def _mean_waits(rank: RankReport) -> dict[WaitCause, float]:
    steps = len(rank.steps) or 1
    waits = rank.loading.waits_ns if rank.loading is not None else None
    return {cause: getattr(waits, cause, 0) / steps for cause in WAIT_CAUSES}
