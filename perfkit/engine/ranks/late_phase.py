"""Name the phase of the training step in which a rank is late, where perfkit annotated the phases."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from msgspec.structs import replace

from perfkit.engine.ranks.delay import HALF
from perfkit.phases import PREFIX
from perfkit.records.common import Category
from perfkit.records.cross_rank import Straggler
from perfkit.records.rank import PhaseStat, RankReport

_NO_STAGES: Final[Mapping[int, int]] = {}
MOST_SHARE: Final = 1.5
"""A phase is named if it takes longer than on the other ranks by half of the lag to so many times of it: in a phase in
which ranks also wait, more than the delay may differ."""


def name_phases(
    stragglers: Sequence[Straggler], ranks: Sequence[RankReport], stage_of: Mapping[int, int] = _NO_STAGES
) -> list[Straggler]:
    """Return the stragglers, each with its phase if one takes longer by about the lag (metrics.md section 5).

    Args:
        stragglers: the ranks that are late.
        ranks: all ranks of the run.
        stage_of: stage of each rank of a pipeline: the phases of others are not compared.
    """
    by_rank = {rank.rank: rank for rank in ranks if rank.rank is not None}
    late = {row.rank for row in stragglers}

    def on_time(row: Straggler) -> list[dict[str, float]]:
        stage = stage_of.get(row.rank)
        others = (own for rank, own in by_rank.items() if rank not in late and stage_of.get(rank) == stage)
        return [_mean_phases(rank, row.category) for rank in others]

    return [
        replace(row, phase=_phase_of(row, _mean_phases(by_rank[row.rank], row.category), on_time(row)))
        for row in stragglers
    ]


def _mean_phases(rank: RankReport, category: Category) -> dict[str, float]:
    steps = len(rank.steps) or 1
    return {phase.name: own_ns(phase, category) / steps for phase in rank.phases if phase.name.startswith(PREFIX)}


def own_ns(phase: PhaseStat, category: Category) -> int:
    """Return the time of an annotation in a category; on a device its whole time on the host."""
    # Of the whole phase, the part in which other ranks wait for this one would hide what this one does.
    return phase.total_ns if phase.exposed_ns is None else int(getattr(phase.exposed_ns, category))


def _phase_of(row: Straggler, own: dict[str, float], others: Sequence[dict[str, float]]) -> str | None:
    if row.category == "data_loading" or row.in_turns or not others or not own:
        return None
    longer = {name: mean - median(phases.get(name, 0.0) for phases in others) for name, mean in own.items()}
    longest = max(longer, key=lambda name: longer[name])
    mean_lag = row.in_category_ns * row.steps_late / row.steps
    fits = HALF * mean_lag <= longer[longest] <= MOST_SHARE * mean_lag
    # In a mesh the rank itself may wait in another phase, for ranks that it delayed: then neither is told.
    alike = sum(excess >= HALF * mean_lag for excess in longer.values())
    return longest.removeprefix(PREFIX) if fits and alike == 1 else None
