"""Which ranks join collectives last, in runs of too few steps to find stragglers by their own time (section 5)."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from perfkit.engine.ranks.delay import HALF, MOST_OF_LAG, MOSTLY
from perfkit.engine.ranks.late_causes import own_ns
from perfkit.engine.ranks.lateness import OWN, OwnTimes
from perfkit.engine.ranks.matching import MatchedCollectives
from perfkit.records.common import Category
from perfkit.records.cross_rank import LastArrivals
from perfkit.records.rank import RankReport
from perfkit.trace.intervals import Ints


class _Collective(NamedTuple):
    """One n-to-n collective; columns of shape (ranks,)."""

    rows: Ints
    step: int
    ranks: Ints
    wait_ns: Ints
    exposed_wait_ns: Ints

    @property
    def late(self) -> frozenset[int]:
        """The ranks that join late, waiting for less than half of the longest wait; empty if nobody waits."""
        return frozenset(self.ranks[self.wait_ns < HALF * self.wait_ns.max()].tolist())

    @property
    def lag_ns(self) -> float:
        """How long the ranks that are not late wait: their median."""
        return float(np.median(self.wait_ns[self.wait_ns >= HALF * self.wait_ns.max()]))


def find_last_arrivals(
    matched: MatchedCollectives, times: OwnTimes, ranks: Sequence[RankReport]
) -> LastArrivals | None:
    """Return the ranks that most of the waiting is for; None if lateness has no such pattern.

    Ranks start recording at different times, and those that start late join the first collectives late. So the first
    collective of a rank in a group does not count, nor do those after it, as long as a rank is late that was late in
    all before. Several traces per rank have a start each.

    Args:
        matched: the collectives of all ranks.
        times: own times of the ranks.
        ranks: their reports.
    """
    before, after = _split_at_start(matched, has_one_start=all(len(rank.traces) == 1 for rank in ranks))
    waits_ns = [int(one.exposed_wait_ns.sum()) for one in after]
    late = [one.late for one in after]
    for_rank = {
        rank: sum(wait for wait, those in zip(waits_ns, late, strict=True) if rank in those) for rank in times.ranks
    }
    blamed = frozenset(rank for rank, wait in for_rank.items() if wait and wait >= MOSTLY * sum(waits_ns))
    counted = [one for one, those in zip(after, late, strict=True) if blamed and blamed <= those]
    if len(counted) < 2 or 2 * len(blamed) > len(times.ranks):
        return None
    lag_ns = max(one.lag_ns for one in counted)
    # What takes longer than all lags of a step is not what the others wait for, or not alone.
    bounds_ns = (HALF * lag_ns, MOST_OF_LAG * _longest_sum_ns(counted))
    category = _longer_category(times, blamed, bounds_ns)
    return LastArrivals(
        ranks=sorted(blamed),
        collectives=len(after),
        late=len(counted),
        operators=sorted({matched.kinds[matched.kind[one.rows[0]]].operator for one in counted}),
        exposed_wait_ns=sum(int(one.exposed_wait_ns.sum()) for one in counted),
        start_wait_ns=sum(int(one.exposed_wait_ns.sum()) for one in before),
        lag_ns=round(lag_ns),
        category=category,
        annotation=_longer_annotation(ranks, blamed, category, bounds_ns) if category else None,
    )


def _longest_sum_ns(collectives: Sequence[_Collective]) -> float:
    """Return the lags of a step, added up; of the step in which they are longest."""
    sums: defaultdict[int, float] = defaultdict(float)
    for one in collectives:
        sums[one.step] += one.lag_ns
    return max(sums.values())


def _split_at_start(matched: MatchedCollectives, *, has_one_start: bool) -> tuple[list[_Collective], list[_Collective]]:
    """Return the collectives that may contain the skew of a start, and the others, each in order of issue.

    Args:
        matched: the collectives of all ranks.
        has_one_start: whether each rank has one trace; else each step counts as the start of another.
    """
    before: list[_Collective] = []
    after: list[_Collective] = []
    seen: defaultdict[tuple[str | None, str | None, int], set[int]] = defaultdict(set)
    starting: defaultdict[tuple[str | None, str | None, int], set[int]] = defaultdict(set)
    for one in _collectives(matched):
        kind = matched.kinds[matched.kind[one.rows[0]]]
        place = (kind.group, kind.members, 0 if has_one_start else one.step)
        ranks = set(one.ranks.tolist())
        new = ranks - seen[place]
        seen[place] |= new
        starting[place] = (starting[place] | new) - (ranks - one.late)
        (before if new or starting[place] & ranks else after).append(one)
    return before, after


def _collectives(matched: MatchedCollectives) -> Iterator[_Collective]:
    """Yield the collectives that are split into waiting and transfer, in order of issue."""
    rows, first = matched.split_rows
    parts = np.split(rows, first[1:]) if len(rows) else []
    for part in sorted(parts, key=lambda part: int(matched.order[part].min())):
        step = int(matched.step[part].max())
        yield _Collective(part, step, matched.rank[part], matched.wait_ns[part], matched.exposed_wait_ns[part])


def _longer_category(times: OwnTimes, late: frozenset[int], bounds_ns: tuple[float, float]) -> Category | None:
    """Return the category in which all late ranks take longer by about the lag; None if none is, or another by half."""
    is_late = np.array([rank in late for rank in times.ranks])
    longer_ns = {}
    for category in OWN:
        mean_ns = times.of(category).mean(axis=1)
        longer_ns[category] = float(mean_ns[is_late].min() - np.median(mean_ns[~is_late]))
    least_ns, most_ns = bounds_ns
    *_, second, longest = sorted(OWN, key=lambda category: longer_ns[category])
    is_alone = longer_ns[second] < longer_ns[longest] / 2
    return longest if is_alone and least_ns <= longer_ns[longest] <= most_ns else None


def _longer_annotation(
    ranks: Sequence[RankReport], late: frozenset[int], category: Category, bounds_ns: tuple[float, float]
) -> str | None:
    """Return the annotation in which every late rank takes longer by about the lag, if there is only one such.

    On a device only idle time and loads are those of the host, whose time annotations have.
    """
    if category in ("compute", "memcpy") and any(rank.device == "gpu" for rank in ranks):
        return None
    time_ns = {
        rank.rank: {row.name: own_ns(row, category) / max(1, len(rank.steps)) for row in rank.phases} for rank in ranks
    }
    blamed = [time_ns.pop(rank) for rank in late if rank in time_ns]
    least_ns, most_ns = bounds_ns
    fitting = []
    for name in sorted(set.intersection(*(set(rows) for rows in (*blamed, *time_ns.values())))):
        usual_ns = median(rows[name] for rows in time_ns.values())
        longer_ns = [rows[name] - usual_ns for rows in blamed]
        if min(longer_ns) >= least_ns and max(longer_ns) <= most_ns:
            fitting.append(name)
    return fitting[0] if len(fitting) == 1 else None
