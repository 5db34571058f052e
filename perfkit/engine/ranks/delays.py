"""Find the ranks that are late, and in which steps: the one model of it (metrics.md section 5).

A rank's own time, without exposed communication and so without waiting, is in each category

    own[rank, step] = common[step] + lag * [step is one of the delay's steps] + noise

with noise of one scale for all ranks, or of a larger one for this rank. The excess over the median of the other ranks
has no `common`. Delays are taken one by one, that which explains most time first, as long as one is beyond chance: its
steps are all, one phase of a period, or, last, any in which the rank stands out. All candidates share one error.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from perfkit.base.statistics.distributions import chance_of_at_least
from perfkit.base.step_numbers import RESTART
from perfkit.engine.ranks.lateness import (
    COLUMN,
    FALSE_ALARMS,
    MOST_STEPS,
    OWN,
    Bools,
    Floats,
    LastRanks,
    OwnTimes,
    excess,
    lag_limits,
    last_ranks,
    rounds_of,
    surely_late,
    waited_for_each_ns,
)
from perfkit.records.common import Category
from perfkit.records.cross_rank import FEWEST_COMPARED_STEPS
from perfkit.trace.intervals import Ints

LEAST_LAG: Final = 0.03
PARTLY: Final = 0.1
"""Smallest lag, as a share of the step: in every step, and in some steps; in a single one: a quarter."""
HALF: Final = 0.5
"""Share of the lag from which a rank is late in a step."""
QUARTER: Final = 0.25
"""Share of the lag up to which it is not, and that the others must be seen to wait; share of the steps in which ranks
meet that are linked, and of the step that a single delay takes at least."""
_FAR: Final = 5.0
"""Single delays are so many times the usual lag."""
_LONGEST: Final = 16
"""Longest period, and longest distance of steps at which the same ranks may be late again."""
MOSTLY: Final = 0.75
NEARLY_ALL: Final = 0.9
"""Shares of steps: most of a delay's are long, and nearly all others are not."""
_RARE: Final = 0.01
"""Accepted probability that chance chooses the same rank so often, or in such an order."""
MANY: Final = 10
"""Number of single delays that are many however long the run."""


class Delay(NamedTuple):
    """A rank that is late in some steps, in one category."""

    row: int
    """Index of the rank."""
    category: Category
    every: int
    late: Bools
    """Whether each step is one of the delay's, shape (steps,)."""
    in_turns: bool = False
    also: tuple[Category, ...] = ()
    """Other categories in which the rank is late."""


def find_delays(times: OwnTimes, false_alarms: float = FALSE_ALARMS) -> list[Delay]:
    """Return the delays beyond chance, at most one of each rank.

    Args:
        times: own times of ranks that wait for each other; where only whole steps are known, in any one category.
        false_alarms: accepted probability that chance makes any rank late.
    """
    found, search = _explained(times, false_alarms)
    rest, rows = search.times, list(found.values())
    turns = _in_order(times) if all(one.every == 1 for one in rows) else []
    if turns and found.keys() <= {one.row for one in turns}:
        # One that is always late may only seem to pause where others are later.
        always = {one.row: found[one.row] for one in turns if _goes_on(times, found.get(one.row), one.late)}
        return [always.get(one.row, one._replace(in_turns=not always)) for one in turns]
    return rows + [one for one in _in_order(rest) or _often(rest, rows) if one.row not in found]


def _explained(times: OwnTimes, false_alarms: float) -> tuple[dict[int, Delay], "_Search"]:
    """Take the delays one by one, that which explains most first; also returns the search, without their time."""
    found: dict[int, Delay] = {}
    search = _Search(times, false_alarms)
    while best := search.best(found):
        for one in best:
            known = found.get(one.row)
            found[one.row] = one if known is None else known._replace(also=(*known.also, one.category))
        search.take_away(best)
    return found, search


def _goes_on(times: OwnTimes, always: Delay | None, late: Bools) -> bool:
    """Return whether a rank that is late in most steps is so between its turns, too."""
    if always is None or late.all():
        return False
    own = excess(times.of(always.category))[always.row]
    return bool(np.median(own[~late]) >= HALF * np.median(own[late]))


class _Search:
    """Looks for delays in every step and in every n-th one.

    Args:
        times: own times.
        false_alarms: accepted error of the whole search.
    """

    def __init__(self, times: OwnTimes, false_alarms: float) -> None:
        self.times = times
        self.false_alarms = false_alarms
        self.wall_ns = times.wall_ns
        self.steps = np.array(times.steps) % RESTART
        self.compared = times.compared * len(OWN)
        self._rounds = rounds_of(times)
        self._waits = waited_for_each_ns(times, self._rounds) if times.of("communication").any() else None
        """What the others wait for each rank, shape (ranks, rounds); None if unknown."""
        self._series = {name: _Series(self, name) for name in OWN if times.of(name).any()}
        self._made_up: dict[Category, Bools] = {}

    def best(self, found: dict[int, Delay]) -> list[Delay]:
        """Return the delay that explains most time, or those of ranks that take turns; empty if none is left.

        With it those of other ranks with the same period and category, if nothing explains more of these: of hundreds
        of late ranks, each by itself would take minutes.
        """
        periods = range(1, min(_LONGEST, len(self.steps) - 2) + 1)
        sets = [one for series in self._series.values() for every in periods for one in series.candidates(every, found)]
        taken: list[Delay] = []
        seen: set[int] = set()
        for _, some in sorted(sets, key=lambda one: -one[0]):
            first, is_new = some[0], seen.isdisjoint(one.row for one in some)
            if first.every == 1 and not self.matters(first):
                continue
            seen.update(one.row for one in some)
            if not taken or (is_new and not first.in_turns and _kind(first) == _kind(taken[0])):
                taken += some
        return taken

    def take_away(self, delays: Sequence[Delay]) -> None:
        """Take away by what ranks exceed the others in the steps of their delays, all in one category."""
        category, exposed_ns = delays[0].category, self.times.exposed_ns.copy()
        for one in delays:
            own = self._series[category].excess[one.row]
            exposed_ns[one.row, :, COLUMN[category]] -= np.where(one.late, np.maximum(own, 0), 0).astype(np.int64)
        self.times = self.times._replace(exposed_ns=exposed_ns)
        self._series[category] = _Series(self, category)
        self._made_up.clear()

    def matters(self, one: Delay) -> bool:
        """Return whether the rank's step gets longer by its delay, which others wait for."""
        lag_ns = self._series[one.category].lag_ns(one)
        if self._waits is not None:
            delays = self._rounds.sums(np.where(one.late, lag_ns, 0.0))[self._rounds.counted]
            waited = np.clip(self._waits[one.row][self._rounds.counted], -delays, delays)
            if waited.sum() < QUARTER * delays.sum():
                return False
        return one.every > 1 or not self._makes_up(one, lag_ns)

    def _makes_up(self, one: Delay, lag_ns: float) -> bool:
        """Return whether a rank takes surely less in its other categories, so that little of the lag is left.

        What it computes, another may do in C++ between operators: there only its whole own time tells.
        """
        if one.category not in self._made_up:
            own, error = self.times.own_ns, self.false_alarms
            self._made_up[one.category] = (
                ~surely_late(own, error / self.compared)
                if one.category == "compute"
                else (surely_late(self.times.of(one.category) - own, error))
            )
        if not self._made_up[one.category][one.row]:
            return False
        return one.category == "compute" or bool(np.median(excess(self.times.own_ns)[one.row]) < QUARTER * lag_ns)


def _kind(one: Delay) -> tuple[Category, int, bool]:
    return one.category, one.every, one.in_turns


class _Series:
    """The own times in one category, and what is judged by them alone; computed where something asks for it."""

    def __init__(self, search: _Search, category: Category) -> None:
        self._search = search
        self._category = category
        self._values = search.times.of(category)
        self._regular: dict[int, list[Delay]] = {}

    @cached_property
    def excess(self) -> Floats:
        """Shape (ranks, steps)."""
        return np.asarray(excess(self._values), np.float64)

    def candidates(self, every: int, found: dict[int, Delay]) -> Iterator[tuple[float, list[Delay]]]:
        """Yield delays of a period with the time (ns) that they explain; those that take turns together.

        Whether those in every step matter is left to the caller: often one of them explains most.
        """
        rows = self._late(every, LEAST_LAG if every == 1 else PARTLY)
        if every == 1:
            known = {row for row, one in found.items() if self._category in (one.category, *one.also)}
            yield from ((self._explains([one]), [one]) for one in rows if one.row not in known)
            return
        regular = [one for one in rows if one.row not in found]
        fitting = [one for one in regular if self._search.matters(one)]
        if turn := self._whole_turn(fitting, every):
            yield self._explains(turn), turn
        elif fitting and len(self._search.steps) >= 2 * every:
            others = np.ones(self.excess.shape, np.bool_)
            for one in regular:
                others[one.row, one.late] = False
            alone = (one for one in fitting if self._stands_out(one, others))
            yield from ((self._explains([one]), [one]) for one in alone)

    def _late(self, every: int, least: float) -> list[Delay]:
        """Return the ranks and phases of a period whose excess is beyond chance, at least `least` of the step."""
        if every not in self._regular:
            self._regular[every] = list(self._beyond_chance(every, least * self._search.wall_ns))
        return self._regular[every]

    def _beyond_chance(self, every: int, least_ns: float) -> Iterator[Delay]:
        phase = self._search.steps[: MOST_STEPS if every > 1 else None] % every
        count, own = np.bincount(phase, minlength=every), self.excess[:, : len(phase)]
        # In half of the steps of its shortest phase, any candidate is late.
        rows = np.flatnonzero((own >= least_ns).sum(axis=1) >= max(1, int(count.min()) // 2))
        if not len(rows) or not count.all():
            return
        own = own[rows]
        lag = np.stack([np.median(own[:, phase == number], axis=1) for number in range(every)], axis=1)
        possible = lag >= least_ns
        for number in np.flatnonzero(possible.any(axis=0)).tolist():
            possible[:, number] &= self._recurs(own, lag[:, number], phase == number)
        kept = possible.any(axis=1)
        rows, lag, own, possible = rows[kept], lag[kept], own[kept], possible[kept]
        if not len(rows):
            return
        error = self._search.false_alarms / self._chances(every)
        sure = possible & (lag >= lag_limits(self._values[:, : len(phase)], own, phase, error))
        for at, number in np.argwhere(sure).tolist():
            yield Delay(int(rows[at]), self._category, every, self._in_phase(every, number))

    def _in_phase(self, every: int, number: int) -> Bools:
        return np.asarray(self._search.steps % every == number)

    def _chances(self, every: int) -> float:
        """Return the number of sets of steps that are compared up to a period, of all ranks and categories."""
        return self._search.compared * every * (every + 1) / 2

    def _recurs(self, own: Floats, lag_ns: Floats, late: Bools) -> Bools:
        """Return which ranks are late in most of some steps, and in hardly any other.

        Args:
            own: excess of the ranks, shape (rows, steps).
            lag_ns: its medians in these steps, shape (rows,).
            late: which steps they are, shape (steps,).
        """
        if late.all():
            return np.asarray((own > 0).mean(axis=1) > HALF) | (len(self._values) == 2)
        long = own >= HALF * lag_ns[:, np.newaxis]
        recurs = (long[:, late].mean(axis=1) >= MOSTLY) & (long[:, ~late].mean(axis=1) <= 1 - NEARLY_ALL)
        recurs[recurs] = np.median(own[recurs][:, ~late], axis=1) <= QUARTER * lag_ns[recurs]
        return np.asarray(recurs)

    def lag_ns(self, one: Delay) -> float:
        """Return the median excess of a rank in the steps of its delay."""
        return float(np.median(self.excess[one.row, one.late]))

    def _explains(self, delays: Sequence[Delay]) -> float:
        """Return by how much the excess is nearer to the delays' lags than to none, in all their steps (ns)."""
        own = [(self.excess[one.row, one.late], self.lag_ns(one)) for one in delays]
        return sum(float((np.abs(late) - np.abs(late - lag)).sum()) for late, lag in own)

    def _stands_out(self, one: Delay, others: Bools) -> bool:
        """Return whether so many long steps would hardly fall into one phase of one rank by chance.

        Args:
            one: the delay.
            others: which steps are those of no such delay, shape (ranks, steps).
        """
        long = self.excess >= HALF * self.lag_ns(one)
        if not (long & others).any():
            return True
        rate = max(long[others].mean(), long[one.row, ~one.late].mean())
        chance = chance_of_at_least(int(long[one.row, one.late].sum()), int(one.late.sum()), float(rate))
        return bool(chance * self._chances(one.every) / len(OWN) <= self._search.false_alarms)

    def _whole_turn(self, known: Sequence[Delay], every: int) -> list[Delay]:
        """Return a delay for each phase, on as many ranks, if at least half of them are beyond chance."""
        steps, ranks = self._search.steps, {one.row for one in known}
        by_phase = {int(steps[one.late.argmax()] % every): one for one in known}
        if not known or len(ranks) != len(by_phase) or len(known) != len(ranks) or 2 * len(known) < every:
            return []
        usual_ns = float(np.median([self.lag_ns(one) for one in known]))
        for number in set(range(every)) - by_phase.keys():
            late = self._in_phase(every, number)
            row = int(np.median(self.excess[:, late], axis=1).argmax())
            one = Delay(row, self._category, every, late)
            lag_ns = self.lag_ns(one)
            recurs = lag_ns >= HALF * usual_ns and self._recurs(self.excess[[row]], np.array([lag_ns]), late)[0]
            if row in ranks or not recurs or not self._search.matters(one):
                return []
            ranks.add(row)
            by_phase[number] = one
        return [one._replace(in_turns=True) for one in by_phase.values()]


# ---- no period -------------------------------------------------------------------------------------------------------


def far_ranks(times: OwnTimes, last: LastRanks, usual_ns: float) -> LastRanks:
    """Return the ranks that are late in a step by far more than usual; not where rather the other half is early."""
    rest = times.own_ns - np.median(times.own_ns, axis=1, keepdims=True)
    early = (2 * last.among.sum(axis=0) == len(last.among)) & (rest.sum(axis=0) < 0)
    far = (last.lag_ns >= max(QUARTER * times.wall_ns, _FAR * usual_ns)) & ~early
    return last._replace(among=last.among & far)


def _in_order(times: OwnTimes) -> list[Delay]:
    """Return ranks that take turns without a period: who is late in a step tells who is late in the next, or later."""
    last = last_ranks(times)
    far = last.lag_ns >= PARTLY * times.wall_ns
    if not far.any():
        return []
    sets = np.full(len(far), -1, np.int64)  # several ranks may be late together
    sets[far] = np.unique(last.among[:, far], axis=1, return_inverse=True)[1].reshape(-1)
    usual = np.flatnonzero(np.bincount(sets[far]) >= max(FEWEST_COMPARED_STEPS, PARTLY * len(far)))
    late = np.isin(sets, usual)
    if len(usual) < 2 or not _is_ordered(sets, len(times.ranks)):
        return []
    delay = min(float(np.median(last.lag_ns[sets == one])) for one in usual)
    if not late.all() and np.mean(last.lag_ns[~late] <= QUARTER * delay) < NEARLY_ALL:
        return []
    rows = np.flatnonzero((last.among & late).any(axis=1)).tolist()
    turns = [_named(times, row, last.among[row] & late) for row in rows]
    return [one._replace(in_turns=True) for one in turns if one] if all(turns) else []


def _is_ordered(sets: Ints, ranks: int) -> bool:
    """Return whether the same ranks are late again at some distance more often than chance would choose them."""
    count = np.bincount(sets[sets >= 0])
    rate = max(1 / ranks, float((count**2).sum()) / float(count.sum()) ** 2)
    longest = min(_LONGEST, len(sets) // 2)
    for distance in range(1, longest + 1):
        first, second = sets[:-distance], sets[distance:]
        both = (first >= 0) & (second >= 0)
        again = int((both & (first == second)).sum())
        accepted = _RARE / 2 / (1 if distance == 1 else longest - 1)
        if again and chance_of_at_least(again, int(both.sum()), rate) <= accepted:
            return True
    return False


def _often(times: OwnTimes, found: Sequence[Delay]) -> list[Delay]:
    """Return the rank that is late in many single steps: more often than chance would choose the same one."""
    last = last_ranks(times)
    others = ~np.any([one.late for one in found], axis=0) if found else np.ones(len(times.steps), np.bool_)
    far = far_ranks(times, last, float(np.median(last.lag_ns[others if others.any() else slice(None)]))).among
    alone = far & (far.sum(axis=0) == 1)
    count = alone.sum(axis=1)
    row = int(count.argmax())
    if not late_often(count, min(PARTLY * len(times.steps), MANY), times.compared)[row]:
        return []
    early = excess(times.own_ns)[row] <= -HALF * np.median(last.lag_ns[alone[row]])
    one = _named(times, row, alone[row])
    return [one] if one and early.sum() <= QUARTER * count[row] else []


def late_often(count: Ints, least: float | Floats, compared: int) -> Bools:
    """Return which ranks stand out in many single steps: more often than chance would choose the same one.

    Args:
        count: number of steps in which each rank stands out, shape (ranks,).
        least: fewest such steps.
        compared: number of ranks that are compared in the run.
    """
    often = (count >= least) & (count > 0)
    total, rate = int(count.sum()), 1 / len(count)
    often[often] = [compared * chance_of_at_least(one, total, rate) <= _RARE for one in count[often].tolist()]
    return np.asarray(often)


def _named(times: OwnTimes, row: int, late: Bools) -> Delay | None:
    """Return a rank's delay in one category; None if its delays are of several kinds."""
    own = np.stack([excess(times.of(name))[row, late] for name in OWN])
    category = int(np.median(own, axis=1).argmax())
    return Delay(row, OWN[category], 1, late) if (own.argmax(axis=0) == category).mean() >= NEARLY_ALL else None
