"""Every step of every rank of a run, for the page on which a reader chooses one of each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from perfkit.base.formatting import escape_unprintable
from perfkit.records.aggregate import mean_own_step_ns, traced_step_ns
from perfkit.records.common import CATEGORIES
from perfkit.records.rank import RankReport, StepBreakdown
from perfkit.records.run import RunReport
from perfkit.tables.labels import LONG, rank_label, rank_labels, step_label

MOST_RANKS: Final = 1024
MOST_CELLS: Final = 50_000
"""Steps times ranks."""
_FEWEST_STEPS: Final = 16
_DIGITS: Final = 5


@dataclass(frozen=True, slots=True)
class RankSteps:
    """Times of steps by rank, in multiples of `unit_ns`."""

    unit_ns: int
    categories: Sequence[tuple[str, str]]
    """Key and label of each, in the order of the times."""
    steps: Sequence[str]
    ranks: Sequence[tuple[str, str]]
    """Label and host of each."""
    times: Sequence[Sequence[Sequence[int] | None]]
    """By rank, then by step: exposed time per category; None for a step that the rank lacks."""
    stragglers: Mapping[str, str]
    """Why a rank is a straggler, by its label."""
    note: str
    """Which ranks and steps are left out; empty if none are."""


def rank_steps(run: RunReport) -> RankSteps | None:
    """Return the steps of a run by rank; None without steps."""
    ranks, known = shown_ranks(run), sum(1 for rank in run.ranks if rank.steps)
    if not ranks:
        return None
    numbers = sorted({step.step for rank in ranks for step in rank.steps}, key=lambda n: (n is None, n or 0))
    kept = _kept_steps(ranks, numbers)
    unit_ns = _unit_ns(ranks)
    tables = [{step.step: step for step in rank.steps} for rank in ranks]
    return RankSteps(
        unit_ns=unit_ns,
        categories=[(name, LONG[name]) for name in CATEGORIES],
        steps=[step_label(number) for number in kept],
        ranks=[
            (label, escape_unprintable(rank.host or "")) for label, rank in zip(rank_labels(ranks), ranks, strict=True)
        ],
        times=[[_times(table.get(number), unit_ns) for number in kept] for table in tables],
        stragglers=_stragglers(run),
        note=_note(len(ranks), known, len(kept), len(numbers)),
    )


def shown_ranks(run: RunReport) -> list[RankReport]:
    """Return the ranks of `rank_steps`, in its order; none without steps."""
    return _kept([rank for rank in run.ranks if rank.steps], _late(run))


def _late(run: RunReport) -> set[int | None]:
    return {one.rank for one in run.cross_rank.stragglers} if run.cross_rank else set()


def _kept(ranks: Sequence[RankReport], late: set[int | None]) -> list[RankReport]:
    """Return the stragglers, and those that take longest without communication; in order."""
    if len(ranks) <= MOST_RANKS:
        return list(ranks)
    by_own_time = sorted(ranks, key=lambda rank: (rank.rank not in late, -mean_own_step_ns(rank)))
    kept = {id(rank) for rank in by_own_time[:MOST_RANKS]}
    return [rank for rank in ranks if id(rank) in kept]


def _kept_steps(ranks: Sequence[RankReport], numbers: Sequence[int | None]) -> list[int | None]:
    """Return the longest steps, in order, as many as there is room for."""
    most = max(_FEWEST_STEPS, MOST_CELLS // len(ranks))
    if len(numbers) <= most:
        return list(numbers)
    longest = traced_step_ns(ranks)
    kept = set(sorted(longest, key=lambda number: -longest[number])[:most])
    return [number for number in numbers if number in kept]


def _unit_ns(ranks: Sequence[RankReport]) -> int:
    """Return a power of ten that leaves the mean step about `_DIGITS` digits."""
    mean = fmean(step.wall_ns for rank in ranks for step in rank.steps)
    return int(10 ** max(0, len(str(int(mean))) - _DIGITS))


def _times(step: StepBreakdown | None, unit_ns: int) -> list[int] | None:
    return None if step is None else [round(getattr(step.exposed_ns, name) / unit_ns) for name in CATEGORIES]


def _stragglers(run: RunReport) -> dict[str, str]:
    if run.cross_rank is None:
        return {}
    return {
        rank_label(one.rank): f"takes longer than the others, in {LONG[one.category]}"
        for one in run.cross_rank.stragglers
    }


def _note(ranks: int, of_ranks: int, steps: int, of_steps: int) -> str:
    shown = []
    if ranks < of_ranks:
        which = "are stragglers or take longest without communication"
        shown.append(f"the {ranks:,} of {of_ranks:,} ranks that {which}")
    if steps < of_steps:
        shown.append(f"the {steps:,} longest of {of_steps:,} steps")
    return f"Shown are {' and '.join(shown)}." if shown else ""
