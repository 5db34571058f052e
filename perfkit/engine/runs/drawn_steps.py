"""Which steps of which ranks a page draws as timelines, and the collectives in them on all ranks."""

from collections.abc import Container, Iterator, Mapping, Sequence
from statistics import median
from typing import Final

import numpy as np

from perfkit.engine.communication.collective_calls import NO_STEP
from perfkit.engine.ranks.clock_alignment import aligned
from perfkit.engine.ranks.matching import MatchedCollectives
from perfkit.records.aggregate import mean_own_step_ns, traced_step_ns
from perfkit.records.cross_rank import CrossRankSummary, HostClock
from perfkit.records.per_run.communication import CollectiveOnRank, LinkedCollective
from perfkit.records.rank import RankReport, StepBreakdown
from perfkit.trace.intervals import Ints

MOST_PER_STEP: Final = 200
"""Collectives of a step, the longest."""
MOST_RANKS: Final = 8
"""Ranks of a collective."""


def chosen_steps(
    ranks: Sequence[RankReport], cross_rank: CrossRankSummary | None, numbers: Container[int] | None = None
) -> Iterator[tuple[RankReport, list[StepBreakdown]]]:
    """Yield the straggler, or the rank that takes longest without communication, and a typical rank, with their steps.

    Args:
        cross_rank: what they show together; None for a single rank.
        numbers: numbers of the steps; None for the longest of the run and one of median length, each as long as on its
            slowest rank.
    """
    wall_ns = traced_step_ns(ranks)
    if not wall_ns:
        return
    if numbers is None:
        middle = median(wall_ns.values())
        wanted = {max(wall_ns, key=wall_ns.__getitem__), min(wall_ns, key=lambda step: abs(wall_ns[step] - middle))}
    else:
        wanted = {step for step in wall_ns if step is not None and step in numbers}
    for rank in _chosen_ranks(ranks, cross_rank):
        yield rank, [step for step in rank.steps if step.step in wanted]


def _chosen_ranks(ranks: Sequence[RankReport], cross_rank: CrossRankSummary | None) -> list[RankReport]:
    late = [one.rank for one in cross_rank.stragglers] if cross_rank else []
    ranks = [rank for rank in ranks if rank.steps]
    slowest = next((rank for rank in ranks if late and rank.rank == late[0]), None) or max(ranks, key=mean_own_step_ns)
    others = [rank for rank in ranks if rank is not slowest]
    if not others:
        return [slowest]
    middle = median(map(mean_own_step_ns, others))
    return [slowest, min(others, key=lambda rank: abs(mean_own_step_ns(rank) - middle))]


def linked_collectives(
    chosen: Sequence[tuple[RankReport, list[StepBreakdown]]],
    matched: MatchedCollectives,
    clocks: Sequence[HostClock],
) -> list[LinkedCollective]:
    """Return the matched collectives of the steps that a page draws, step by step in order of time."""
    drawn = {rank.rank for rank, _ in chosen if rank.rank is not None}
    steps = dict.fromkeys(step.step for _, steps in chosen for step in steps)
    clock_of = {rank: clock for clock in clocks for rank in clock.ranks}
    found = []
    for step in steps:
        rows = _rows_of_step(matched, step, drawn)
        opens = np.flatnonzero(np.diff(matched.collective[rows], prepend=-1))
        found += [_linked(matched, step, own, drawn, clock_of) for own in np.split(rows, opens[1:]) if len(own)]
    return found


def _rows_of_step(matched: MatchedCollectives, step: int | None, drawn: set[int]) -> Ints:
    """Return the rows of a step's longest collectives that a drawn rank took part in, on all ranks."""
    here = (matched.step == (NO_STEP if step is None else step)) & (matched.collective >= 0)
    shown = np.flatnonzero(here & np.isin(matched.rank, list(drawn)))
    shown = shown[np.argsort(-matched.duration_ns[shown], kind="stable")]
    wanted = list(dict.fromkeys(matched.collective[shown].tolist()))[:MOST_PER_STEP]
    return np.flatnonzero(np.isin(matched.collective, wanted))


def _linked(
    matched: MatchedCollectives, step: int | None, rows: Ints, drawn: set[int], clock_of: Mapping[int, HostClock]
) -> LinkedCollective:
    wait_ns = np.where(matched.wait_known[rows], matched.wait_ns[rows], 0)
    last = int(rows[np.argmin(matched.duration_ns[rows])]) if matched.splits[rows].all() and wait_ns.any() else None
    first = np.isin(matched.rank[rows], list(drawn)) | (rows == last)
    kept = np.sort(rows[np.lexsort((-wait_ns, ~first))[:MOST_RANKS]])
    kind = matched.kinds[int(matched.kind[rows[0]])]
    return LinkedCollective(
        step=step,
        operator=kind.operator,
        group_size=kind.group_size,
        ranks=len(rows),
        last=None if last is None else int(matched.rank[last]),
        on_ranks=[_on_rank(matched, row, clock_of) for row in kept.tolist()],
    )


def _on_rank(matched: MatchedCollectives, row: int, clock_of: Mapping[int, HostClock]) -> CollectiveOnRank:
    rank, duration_ns = int(matched.rank[row]), int(matched.duration_ns[row])
    start_ns = int(matched.ended_ns[row]) - duration_ns
    return CollectiveOnRank(
        rank=rank,
        start_ns=start_ns,
        begin_ns=on_reference_clock(clock_of.get(rank), start_ns),
        duration_ns=duration_ns,
        wait_ns=int(matched.wait_ns[row]) if matched.wait_known[row] else None,
    )


def on_reference_clock(clock: HostClock | None, time_ns: int) -> int | None:
    """Return an instant of a host's clock by the reference clock; None if the two are not linked."""
    if clock is None or clock.offset_ns is None:
        return None
    return int(aligned(clock, np.array([time_ns]))[0])
