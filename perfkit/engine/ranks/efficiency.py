"""The POP model's multiplicative efficiency factors, with input and host added (metrics.md section 6)."""

from collections.abc import Iterable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

import numpy as np

from perfkit.engine.communication.collective_calls import CollectiveCalls
from perfkit.engine.ranks.matching import MatchedCollectives
from perfkit.records.facts import Fact, statement
from perfkit.records.rank import RankReport, StepBreakdown
from perfkit.records.run import FACTORS, Efficiency
from perfkit.trace.intervals import Ints


class Join(NamedTuple):
    """Ranks that join one collective."""

    rank: Ints
    """Indices into the list of ranks."""
    joined_ns: Ints
    """The progress at which each joins."""
    blocked_ns: Ints
    """The progress at which each waits for the end; -1 if it does not."""


def replay(
    joins: Iterable[Join], progress_ns: Ints, begun_ns: Ints | None = None, paused_ns: Ints | None = None
) -> int:
    """Return how long the run would take with zero-cost transfers and the same arrival order.

    With o_r the time that rank r has waited so far, a collective completes when the last rank has joined, at
    C = max(A_r + o_r), and a rank that it blocks at Q_r continues from there: o_r = max(o_r, C - Q_r).

    Args:
        joins: matched n-to-n collectives, in issue order.
        progress_ns: P_r(end) of each rank, shape (ranks,): its time without exposed communication.
        begun_ns: how much later than the first rank each began, shape (ranks,); None: together.
        paused_ns: time of each rank's pauses, which are part of its progress, but of no step, shape (ranks,).
    """
    waited = np.zeros(len(progress_ns), np.int64) if begun_ns is None else begun_ns.copy()
    for rank, joined_ns, blocked_ns in joins:
        complete = (joined_ns + waited[rank]).max()
        waited[rank] = np.where(blocked_ns >= 0, np.maximum(waited[rank], complete - blocked_ns), waited[rank])
    return int((progress_ns + waited - (0 if paused_ns is None else paused_ns)).max())


def joins_of(matched: MatchedCollectives, place: Mapping[int, int]) -> list[Join]:
    """Return the collectives that can be replayed, in an order consistent with every rank's issue order."""
    rows, first = matched.split_rows
    parts = np.split(rows, first[1:]) if len(rows) else []
    ranks, number = np.unique(matched.rank, return_inverse=True)
    where = np.array([place[rank] for rank in ranks.tolist()] or [0], np.int64)[number]
    return [Join(where[part], matched.joined_ns[part], matched.blocked_ns[part]) for part in _ordered(matched, parts)]


def _ordered(matched: MatchedCollectives, parts: list[Ints]) -> list[Ints]:
    """Sort collectives consistently with every rank's issue order, if the ranks agree on one."""
    number = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    rows = np.concatenate([*parts, np.zeros(0, np.int64)])
    counted = np.lexsort((number, matched.rank[rows]))
    forward = np.diff(matched.order[rows[counted]]) > 0
    if (forward | (np.diff(matched.rank[rows[counted]]) != 0)).all():
        return parts
    by = np.lexsort((matched.order[rows], matched.rank[rows]))
    follows = np.flatnonzero(np.diff(matched.rank[rows[by]]) == 0)
    sorter = TopologicalSorter[int](dict.fromkeys(range(len(parts)), ()))
    for before, after in zip(number[by[follows]].tolist(), number[by[follows + 1]].tolist(), strict=True):
        sorter.add(after, before)
    try:
        return [parts[index] for index in sorter.static_order()]
    except CycleError:  # the ranks contradict each other: fall back to the collectives' numbering
        return parts


class _Times(NamedTuple):
    """Times of every rank (ns); shape (ranks,)."""

    wall: Ints
    compute: Ints
    host: Ints
    """memcpy + overhead."""
    data_loading: Ints


def _times(ranks: Sequence[Sequence[StepBreakdown]]) -> _Times:
    def sums(*categories: str) -> Ints:
        return np.array(
            [sum(getattr(step.exposed_ns, c) for step in steps for c in categories) for steps in ranks], np.int64
        )

    wall = np.array([sum(step.wall_ns for step in steps) for steps in ranks], np.int64)
    return _Times(wall, sums("compute"), sums("memcpy", "overhead"), sums("data_loading"))


def start_offsets(ranks: Sequence[RankReport], matched: MatchedCollectives) -> Ints:
    """Return how much later than the first rank each began to record (ns), shape (ranks,).

    All ranks leave an n-to-n collective together, so the first that all take part in tells how far apart they began, in
    each rank's own clock; zero if there is none. Collectives before the first window, which could tell whether the
    ranks were in step by then, are in no step and are not matched.
    """
    together = np.zeros(len(ranks), np.int64)
    rows = np.flatnonzero(matched.splits)
    if len(ranks) < 2 or not len(rows):
        return together
    number, count = np.unique(matched.collective[rows], return_counts=True)
    shared = rows[np.isin(matched.collective[rows], number[count == len(ranks)])]
    if not len(shared):
        return together
    earliest = matched.collective[shared[np.argmin(matched.order[shared])]]
    members = shared[matched.collective[shared] == earliest]
    ended = dict(zip(matched.rank[members].tolist(), matched.ended_ns[members].tolist(), strict=True))
    until = np.array([ended[rank.rank] - rank.steps[0].start_ns for rank in ranks], np.int64)
    return np.asarray(until.max() - until)


def efficiency(
    ranks: Sequence[RankReport],
    calls: Mapping[int, CollectiveCalls],
    matched: MatchedCollectives,
    partial: Fact | None = None,
    lost: bool = False,
) -> Efficiency | None:
    """Return the efficiency factors of a run; None without steps.

    Args:
        ranks: reports of ranks with a known number and steps.
        calls: their collectives, by rank.
        matched: the same collectives, matched.
        partial: what is known of the number of ranks if these are not all, or may not be all; None: these are all.
        lost: whether traces lack what the device did, so that computing and waiting are not known.
    """
    if not ranks:
        return None
    times = _times([rank.steps for rank in ranks])
    place = {rank.rank: index for index, rank in enumerate(ranks) if rank.rank is not None}
    progress = np.array([calls[rank.rank].progress_ns for rank in ranks if rank.rank is not None], np.int64)
    begun = start_offsets(ranks, matched)
    skew = int(begun.max())
    paused = np.array([sum(step.paused_ns for step in rank.steps) for rank in ranks], np.int64)
    replayed = replay(joins_of(matched, place), progress, begun, paused) - skew
    floor = int((times.compute + times.host + times.data_loading).max())
    longest = max(int((times.wall + begun).max()) - skew, floor)
    ideal = min(max(replayed, floor), longest)
    wait = int(matched.exposed_wait_ns.sum())
    communication = sum(step.exposed_ns.communication for rank in ranks for step in rank.steps)
    factors = _factors(times, ideal, longest)
    reason = None if factors["parallel"] else statement("no_compute_measured")
    if reason is None and partial is not None:
        factors |= {"parallel": None, "load_balance": None}
        reason = statement("partly_traced", partial=partial)
    if lost:
        factors |= dict.fromkeys(factors, None)
        reason = statement("device_not_recorded")
    return Efficiency(
        **factors,
        au=None if lost else _utilisation(ranks),
        t_ns=longest,
        t_ideal_ns=ideal,
        own_ns=floor,
        replayed_ns=replayed,
        mean_compute_ns=float(times.compute.mean()),
        max_compute_ns=int(times.compute.max()),
        sum_compute_ns=int(times.compute.sum()),
        wait_ns=wait,
        transfer_ns=communication - wait,
        unmatched_ns=communication - int(matched.exposed_ns[matched.wait_known].sum()),
        reason=reason,
    )


def _factors(times: _Times, ideal_ns: int, longest_ns: int) -> dict[str, float | None]:
    """Return the factors as ratios of neighbours in a chain of times, so that they multiply exactly."""
    useful = times.compute
    chain = (
        float(useful.mean()),
        int(useful.max()),
        int((useful + times.host).max()),
        int((useful + times.host + times.data_loading).max()),
        ideal_ns,
        longest_ns,
    )
    if not chain[0]:
        return dict.fromkeys(("parallel", *FACTORS))
    factors: dict[str, float | None] = {name: chain[k] / chain[k + 1] for k, name in enumerate(FACTORS)}
    return factors | {"parallel": chain[0] / chain[-1]}


def _utilisation(ranks: Sequence[RankReport]) -> float | None:
    """Return U / T without the first measured step; None if it is the only one."""
    later = [rank.steps[1:] for rank in ranks]
    times = _times(later)
    return float(times.compute.mean()) / int(times.wall.max()) if times.wall.max() else None
