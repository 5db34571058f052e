"""Name why ranks are late: what of their reports differs from those of the ranks that they are compared with.

The phase (metrics.md section 5), what loading waits for (section 24), the line of the program (section 28), the work.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from statistics import median
from typing import Final

from msgspec.structs import replace

from perfkit.engine.ranks.delay import HALF, MOST_OF_LAG
from perfkit.engine.ranks.late_work import find_work, mean_work, name_hosts
from perfkit.engine.runs.data_loading import slowest_worker
from perfkit.phases import PREFIX
from perfkit.records.aggregate import MAJORITY
from perfkit.records.common import Category
from perfkit.records.cross_rank import LateLoading, Straggler
from perfkit.records.per_rank.loading import WAIT_CAUSES, WaitCause
from perfkit.records.rank import PhaseStat, RankReport
from perfkit.records.samples import CodeLocation, add_code

_UNNAMED: Final[tuple[WaitCause, ...]] = ("other",)
_Function = tuple[str, str]
"""File and name."""


def name_causes(
    stragglers: Sequence[Straggler], ranks: Sequence[RankReport], stage_of: Mapping[int, int]
) -> list[Straggler]:
    """Return the stragglers with host, phase, cause of loading, code and work, as far as these are known.

    Args:
        stragglers: the ranks that are late.
        ranks: all ranks of the run.
        stage_of: stage of each rank of a pipeline; empty without one.
    """
    by_rank = {rank.rank: rank for rank in ranks if rank.rank is not None}
    late = {row.rank for row in stragglers}
    mean = cache(lambda numbers: mean_work([by_rank[number] for number in numbers]))

    def named(row: Straggler) -> Straggler:
        rank, others = by_rank[row.rank], on_time([row], late, ranks, stage_of)
        return replace(
            row,
            phase=find_phase(row, rank, others),
            loading=find_load_cause(row, rank, others, ranks),
            code=find_code(row, rank, others),
            work=find_work(row, rank, others, mean),
        )

    return [named(row) for row in name_hosts(stragglers, ranks)]


def on_time(
    rows: Sequence[Straggler], late: Collection[int], ranks: Sequence[RankReport], stage_of: Mapping[int, object]
) -> list[RankReport]:
    """Return the ranks that late ones are compared with: never late, linked with them, and at the stage of one."""
    stages, linked = [stage_of.get(row.rank) for row in rows], {rank for row in rows for rank in row.delays}
    known = ((rank.rank, rank) for rank in ranks if rank.rank is not None and rank.steps and rank.rank not in late)
    return [rank for number, rank in known if stage_of.get(number) in stages and (not linked or number in linked)]


# ---- phase -----------------------------------------------------------------------------------------------------------


def find_phase(row: Straggler, rank: RankReport, on_time: Sequence[RankReport]) -> str | None:
    """Return the phase that takes longer by about the lag than on other ranks; None if none or several do.

    By half of the lag to 1.5 times of it: in a phase in which ranks also wait, more than the delay may differ.
    """
    own, others = _mean_phases(rank, row.category), [_mean_phases(other, row.category) for other in on_time]
    if row.category == "data_loading" or row.in_turns or not others or not own:
        return None
    longer = {name: mean - median(phases.get(name, 0.0) for phases in others) for name, mean in own.items()}
    longest = max(longer, key=lambda name: longer[name])
    mean_lag = row.in_category_ns * row.steps_late / row.steps
    fits = HALF * mean_lag <= longer[longest] <= MOST_OF_LAG * mean_lag
    # In a mesh the rank itself may wait in another phase, for ranks that it delayed: then neither is told.
    alike = sum(excess >= HALF * mean_lag for excess in longer.values())
    return longest.removeprefix(PREFIX) if fits and alike == 1 else None


def _mean_phases(rank: RankReport, category: Category) -> dict[str, float]:
    steps = len(rank.steps) or 1
    return {phase.name: own_ns(phase, category) / steps for phase in rank.phases if phase.name.startswith(PREFIX)}


def own_ns(phase: PhaseStat, category: Category) -> int:
    """Return the time of an annotation in a category; on a device its whole time on the host."""
    # Of the whole phase, the part in which other ranks wait for this one would hide what this one does.
    return phase.total_ns if phase.exposed_ns is None else int(getattr(phase.exposed_ns, category))


# ---- loading ---------------------------------------------------------------------------------------------------------


def find_load_cause(
    row: Straggler, rank: RankReport, on_time: Sequence[RankReport], ranks: Sequence[RankReport]
) -> LateLoading | None:
    """Return what a rank that is late in data loading waits for, if the batches of all ranks tell.

    A cause is named if the rank waits longer for it than the ranks that are never late, by at least half of its mean
    lag; where there is none to compare with, because ranks take turns or all are late, if it is at least half of the
    rank's waiting, and of the mean lag.
    """
    if row.category != "data_loading" or any(one.loading is None for one in ranks):
        return None
    own = _mean_waits(rank)
    usual = [] if row.in_turns else [_mean_waits(other) for other in on_time]
    longer = {name: own[name] - median([waits[name] for waits in usual] or [0.0]) for name in WAIT_CAUSES}
    cause = max(WAIT_CAUSES, key=lambda name: longer[name])
    mean_lag = row.in_category_ns * row.steps_late / row.steps
    least = max(mean_lag, 0.0 if usual else sum(own.values()))
    if cause in _UNNAMED or longer[cause] < MAJORITY * least or rank.loading is None:
        return None
    slow = sum(bool(one.loading and one.loading.slow_workers) for one in ranks)
    is_worker = cause == "slow_worker" and rank.loading.slow_workers
    worker = slowest_worker(rank.loading, slow, len(ranks)) if is_worker else None
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


# ---- code ------------------------------------------------------------------------------------------------------------


def find_code(row: Straggler, rank: RankReport, on_time: Sequence[RankReport]) -> CodeLocation | None:
    """Return the line of the function in which a rank is longer by half of its lag or more; None without one.

    It is compared with the ranks that are never late; where there are none, or ranks take turns, with nothing.
    """
    own = _mean_code_ns(rank, row.category)
    usual = [_mean_code_ns(other, row.category) for other in on_time if other.code and not row.in_turns]
    longer = {key: ns - median([other.get(key, 0.0) for other in usual] or [0.0]) for key, ns in own.items()}
    longest = max(longer, key=lambda key: longer[key], default=None)
    if longest is None or longer[longest] < MAJORITY * row.in_category_ns * row.steps_late / row.steps:
        return None
    return add_code(code for code in _codes(rank, row.category) if _key(code) == longest)


def _codes(rank: RankReport, category: Category) -> list[CodeLocation]:
    """Return where a rank spends the time of a category; of data loading also in workers that it waits for."""
    if category == "data_loading" and rank.loading is not None and rank.loading.parts:
        return [part.code for part in rank.loading.parts if part.code is not None]
    return [one.code for one in rank.code if one.category == category]


def _key(code: CodeLocation) -> _Function:
    return code.file, code.function


def _mean_code_ns(rank: RankReport, category: Category) -> Mapping[_Function, float]:
    """Return the time per step of each function in a category."""
    steps, total = len(rank.steps) or 1, defaultdict[_Function, float](float)
    for code in _codes(rank, category):
        total[_key(code)] += code.ns / steps
    return total
