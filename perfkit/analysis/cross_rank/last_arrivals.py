"""Which ranks join collectives last, in runs of too few steps to find stragglers by their own time (section 5)."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final, NamedTuple

import numpy as np

from perfkit.analysis.cross_rank.lateness import OWN, OwnTimes
from perfkit.analysis.cross_rank.matching import MatchedCollectives
from perfkit.schema.common import Category
from perfkit.schema.cross_rank import LastArrivals
from perfkit.schema.rank import PhaseStat, RankReport
from perfkit.trace.intervals import Ints

_LATE: Final = 0.5
"""A rank joins late if it waits for less than this share of the longest wait in the collective."""
_MOST: Final = 0.75
"""Share of the waiting that must be for the same ranks."""
_FEWEST: Final = 2
"""Fewest collectives in which they must be late: one may be chance."""
_OWN_WAIT: Final = 0.5
"""Largest wait of the late ranks themselves, relative to that of the others: else ranks take turns."""
_LEAST_SHARE: Final = 0.5
_MOST_SHARE: Final = 1.5
"""A category or an annotation is named if it takes longer by between these shares of the lag."""


class _Collective(NamedTuple):
    """One n-to-n collective; columns of shape (ranks,)."""

    rows: Ints
    ranks: Ints
    wait_ns: Ints
    exposed_wait_ns: Ints

    @property
    def late(self) -> frozenset[int]:
        """The ranks that join late; empty if nobody waits."""
        return frozenset(self.ranks[self.wait_ns < _LATE * self.wait_ns.max()].tolist())

    @property
    def lag_ns(self) -> float:
        """How long the ranks that are not late wait: their median."""
        return float(np.median(self.wait_ns[self.wait_ns >= _LATE * self.wait_ns.max()]))


def find_last_arrivals(
    matched: MatchedCollectives, times: OwnTimes, ranks: Sequence[RankReport]
) -> LastArrivals | None:
    """Return the ranks that the others wait for in most collectives; None if lateness has no such pattern.

    Ranks start recording at different times, and those that start late join the first collectives late. So the first
    collective of a group does not count, nor do those after it, as long as a rank is late that was late in all before.

    Args:
        matched: the collectives of all ranks.
        times: own times of the ranks.
        ranks: their reports.
    """
    before, after = _split_at_start(matched)
    waits_ns = [int(one.exposed_wait_ns.sum()) for one in after]
    late = [one.late for one in after]
    for_rank = {
        rank: sum(wait for wait, those in zip(waits_ns, late, strict=True) if rank in those) for rank in times.ranks
    }
    blamed = frozenset(rank for rank, wait in for_rank.items() if wait and wait >= _MOST * sum(waits_ns))
    counted = [one for one, those in zip(after, late, strict=True) if blamed and blamed <= those]
    if len(counted) < _FEWEST or 2 * len(blamed) > len(times.ranks) or not _others_wait(after, blamed):
        return None
    lag_ns = max(one.lag_ns for one in counted)
    return LastArrivals(
        ranks=sorted(blamed),
        collectives=len(after),
        late=len(counted),
        operators=sorted({matched.kinds[matched.kind[one.rows[0]]].operator for one in counted}),
        exposed_wait_ns=sum(int(one.exposed_wait_ns.sum()) for one in counted),
        start_wait_ns=sum(int(one.exposed_wait_ns.sum()) for one in before),
        lag_ns=round(lag_ns),
        category=_longest_category(times, blamed, lag_ns),
        annotation=_longest_annotation(ranks, blamed, lag_ns),
    )


def _split_at_start(matched: MatchedCollectives) -> tuple[list[_Collective], list[_Collective]]:
    """Return the collectives that may contain the skew of the start, and those after them, in order of issue."""
    before: list[_Collective] = []
    after: list[_Collective] = []
    late_since: dict[tuple[str | None, str | None], frozenset[int]] = {}
    for one in _collectives(matched):
        kind = matched.kinds[matched.kind[one.rows[0]]]
        group = (kind.group, kind.members)
        is_first = group not in late_since
        late_since[group] = late_since.get(group, one.late) & one.late
        (before if is_first or late_since[group] else after).append(one)
    return before, after


def _collectives(matched: MatchedCollectives) -> Iterator[_Collective]:
    """Yield the collectives that are split into waiting and transfer, in order of issue."""
    rows = np.flatnonzero(matched.splits)
    if not len(rows):
        return
    parts = np.split(rows, np.flatnonzero(np.diff(matched.collective[rows])) + 1)
    for part in sorted(parts, key=lambda part: int(matched.order[part].min())):
        yield _Collective(part, matched.rank[part], matched.wait_ns[part], matched.exposed_wait_ns[part])


def _others_wait(collectives: Sequence[_Collective], late: frozenset[int]) -> bool:
    """Return whether the late ranks hardly wait themselves: in turns, each would wait for the others."""
    waits: dict[bool, list[int]] = {True: [], False: []}
    for one in collectives:
        for rank, wait in zip(one.ranks.tolist(), one.exposed_wait_ns.tolist(), strict=True):
            waits[rank in late].append(wait)
    return float(np.mean(waits[True])) <= _OWN_WAIT * float(np.mean(waits[False] or [0]))


def _longest_category(times: OwnTimes, late: frozenset[int], lag_ns: float) -> Category | None:
    """Return the category in which the late ranks take longer by at least about the lag; None without any."""
    is_late = np.array([rank in late for rank in times.ranks])
    longer = {}
    for category in OWN:
        own_ns = times.of(category).mean(axis=1)
        longer[category] = float(own_ns[is_late].min() - np.median(own_ns[~is_late]))
    longest = max(OWN, key=lambda category: longer[category])
    return longest if longer[longest] >= _LEAST_SHARE * lag_ns else None


def _longest_annotation(ranks: Sequence[RankReport], late: frozenset[int], lag_ns: float) -> str | None:
    """Return the annotation in which every late rank takes longer by about the lag, if there is only one such."""
    time_ns = {rank.rank: {row.name: _own_ns(row) / max(1, len(rank.steps)) for row in rank.phases} for rank in ranks}
    blamed = [time_ns.pop(rank) for rank in late if rank in time_ns]
    fitting = []
    for name in sorted(set.intersection(*(set(rows) for rows in (*blamed, *time_ns.values())))):
        usual_ns = median(rows[name] for rows in time_ns.values())
        longer = [rows[name] - usual_ns for rows in blamed]
        if min(longer) >= _LEAST_SHARE * lag_ns and max(longer) <= _MOST_SHARE * lag_ns:
            fitting.append(name)
    return fitting[0] if len(fitting) == 1 else None


def _own_ns(row: PhaseStat) -> int:
    """Return the time of an annotation without communication, where it is known: what other ranks do hides in that."""
    return row.total_ns - (row.exposed_ns.communication if row.exposed_ns else 0)
