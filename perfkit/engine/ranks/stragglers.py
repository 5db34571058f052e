"""The ranks that are late: by how much, and what that costs; and delays of single steps (metrics.md section 5)."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Final, Literal, NamedTuple

import numpy as np

from perfkit.engine.ranks.delay import FAR_LAGS, HALF, LEAST_LAG, NEARLY_ALL, QUARTER, Delay, RankDelay
from perfkit.engine.ranks.delays import find_delays
from perfkit.engine.ranks.lateness import (
    COLUMN,
    OWN,
    Bools,
    Floats,
    LastRanks,
    OwnTimes,
    excess,
    last_ranks,
)
from perfkit.engine.ranks.single_steps import far_ranks
from perfkit.records.common import Category
from perfkit.records.cross_rank import FEWEST_COMPARED_STEPS, CategoryLag, OneOffStraggler, Straggler

MOST_ONE_OFF: Final = 3
"""Single delays that a report lists."""
_NARROW: Final = 0.1
"""Largest median deviation of steps that are alike, as a share of the lag."""


class Stragglers(NamedTuple):
    """All ranks that are late in more than a single step."""

    ranks: list[Straggler]
    """Largest lag first."""
    delays: Sequence[RankDelay] = ()
    """What a replay takes away of each."""


def find_stragglers(times: OwnTimes) -> Stragglers:
    """Return the ranks that are late beyond chance."""
    found = _sized(times, find_delays(times)) if len(times.steps) >= FEWEST_COMPARED_STEPS else []
    if not found:
        return Stragglers([])
    last, wall_ns = last_ranks(times), times.wall_ns
    one_at_a_time = len(found) > 1 and bool((np.sum([one.late for one in found], axis=0) == 1).all())
    rows = [
        Straggler(
            rank=times.ranks[one.row],
            category=one.category,
            lag_ns=round(one.lag_ns),
            also=[CategoryLag(category=name, lag_ns=ns) for name, ns in one.also],
            first_step=_bound(times, one, 0),
            last_step=_bound(times, one, -1),
            share=one.lag_ns / wall_ns,
            every=one.delay.every,
            in_turns=one.delay.in_turns,
            one_at_a_time=one_at_a_time,
            steps_late=int(one.late.sum()),
            steps_last=int((last.row == one.row)[one.late].sum()),
            steps=len(times.steps),
        )
        for one in found
    ]
    count = Counter(one.row for one in found)
    shares = [one.share * (one.late | (count[one.row] == 1)) for one in found]
    delays = [
        RankDelay(times.ranks[one.row], dict(zip(times.steps, share.tolist(), strict=True)))
        for one, share in zip(found, shares, strict=True)
    ]
    return Stragglers(sorted(rows, key=lambda row: (-row.lag_ns, row.rank)), delays)


def find_all_stragglers(parts: Sequence[OwnTimes]) -> Stragglers:
    """Return the stragglers of a run, each found among the ranks that it can be compared with."""
    found = [find_stragglers(part) for part in parts]
    rows = (row for one in found for row in one.ranks)
    delays = [delay for one in found for delay in one.delays]
    return Stragglers(sorted(rows, key=lambda row: (-row.lag_ns, row.rank)), delays)


def find_one_off_stragglers(times: OwnTimes, stragglers: Stragglers) -> list[OneOffStraggler]:
    """Return the steps in which ranks were late although they usually are not, largest lag first."""
    if len(times.steps) < FEWEST_COMPARED_STEPS:
        return []
    last = last_ranks(times)
    lags_ns = [row.lag_ns for row in stragglers.ranks if row.rank in times.ranks]
    usual_ns = max([float(np.median(last.lag_ns)), *lags_ns])
    return sorted(_single(times, far_ranks(times, last, usual_ns)), key=lambda one: -one.lag_ns)


# ---- how much --------------------------------------------------------------------------------------------------------


class _Sized(NamedTuple):
    """A delay with its size."""

    delay: Delay
    late: Bools
    """Whether the rank is late in each step: clearly in some only, of a delay in every step, shape (steps,)."""
    share: Floats
    """Which share of what it takes longer in each step is of the delay if it has no other, shape (steps,)."""
    lag_ns: float
    category: Category
    """In which most of the lag is."""
    also: list[tuple[Category, int]]
    """Other categories in which it is late, and by how much; largest lag first."""

    @property
    def row(self) -> int:
        """Index of the rank."""
        return self.delay.row


def _sized(times: OwnTimes, found: Sequence[Delay]) -> list[_Sized]:
    """Return the delays with their sizes, without those of ranks that take no longer than the ranks on time.

    The excess is that over the ranks that are never late, or, where all are or take turns, over the others.
    """
    late_rows = {one.row for one in found}
    on_time = [row for row in range(len(times.ranks)) if row not in late_rows]
    over_others = cache(lambda name: excess(times.of(name)))
    usual = cache(lambda name: np.median(times.of(name)[on_time], axis=0))

    def excess_ns(one: Delay, name: Category | None) -> Floats:
        if one.in_turns or not on_time:
            return np.asarray(over_others(name)[one.row], np.float64)
        return np.asarray(times.of(name)[one.row] - usual(name), np.float64)

    rows = [_size(one, partial(excess_ns, one), LEAST_LAG * times.wall_ns) for one in found]
    return [one for one in rows if one.lag_ns > 0]


def _size(one: Delay, excess_ns: Callable[[Category | None], Floats], least_ns: float) -> _Sized:
    """Return a delay with its size: in all that it is late in, together."""
    names = [name for name in (one.category, *one.also) if name is not None]
    is_whole = len(names) <= len(one.also)
    own = excess_ns(None) if is_whole else np.sum([excess_ns(name) for name in names], axis=0)
    late = _only_where_late(own) if one.late.all() else one.late
    lags = {name: float(np.median(excess_ns(name)[late])) for name in (OWN if is_whole else names)}
    most: Category = one.category or max(lags.items(), key=lambda part: part[1])[0]
    lag_ns = float(np.median(own[late]))
    if lags[most] < least_ns:  # what is idle behind a transfer is no idle time of the step
        most = "overhead"
    also = {name: ns for name, ns in lags.items() if name != most and ns >= least_ns}
    listed_ns = max(lags[most], 0.0) + sum(also.values())  # medians may not add up
    of_sum = min(1.0, lag_ns / listed_ns) if one.every == 1 and listed_ns else 1.0
    parts = [(name, round(of_sum * ns)) for name, ns in sorted(also.items(), key=lambda part: -part[1])]
    whole = excess_ns(None)  # of which what takes many times the lag is another delay, of single steps
    share = np.where(whole > FAR_LAGS * lag_ns, lag_ns / np.maximum(whole, 1), 1.0)
    return _Sized(one, late, share, lag_ns, most, parts)


def _bound(times: OwnTimes, one: _Sized, end: Literal[0, -1]) -> int | None:
    """Return the first or last step of a stretch; None where it is that of all steps."""
    return times.steps[np.flatnonzero(one.late)[end]] if one.delay.is_stretch and not one.late[end] else None


def _only_where_late(own: Floats) -> Bools:
    """Return in which steps a rank is late that is so in most: those, if it clearly is not in the others, or all."""
    lag_ns = float(np.median(own))
    late, every = own >= HALF * lag_ns, np.ones(len(own), np.bool_)
    if lag_ns <= 0 or late.mean() >= NEARLY_ALL or np.median(own[~late]) > QUARTER * lag_ns:
        return every
    is_clear = all(_deviation(own[part]) <= _NARROW * lag_ns for part in (late, ~late))
    return late if is_clear else every


def _deviation(values: Floats) -> float:
    return float(np.median(np.abs(values - np.median(values))))


# ---- single steps ----------------------------------------------------------------------------------------------------


def _single(times: OwnTimes, last: LastRanks) -> Iterator[OneOffStraggler]:
    known = set(times.steps)
    for k in np.flatnonzero(last.among.any(axis=0)).tolist():
        late = np.flatnonzero(last.among[:, k]).tolist()
        beyond = excess(times.exposed_ns[:, k])[late][:, [COLUMN[name] for name in OWN]]
        most, least_ns = Counter(beyond.argmax(axis=1).tolist()), float(beyond.max(axis=1).min())
        explained = len(most) == 1 and least_ns >= QUARTER * last.lag_ns[k]
        yield OneOffStraggler(
            rank=times.ranks[last.row[k]],
            with_ranks=[times.ranks[place] for place in late if place != last.row[k]],
            step=times.steps[k],
            is_first=times.steps[k] - 1 not in known,
            lag_ns=round(last.lag_ns[k]),
            category=OWN[next(iter(most))] if explained else None,
            category_ns=round(least_ns) if explained else 0,
        )
