"""Find the ranks that are late, and in which steps: the one model of it (metrics.md section 5).

A rank's time, without waiting for others, is as a whole and in each category

    own[rank, step] = common[step] + lag * [step is one of the delay's steps] + noise

The excess over the median of the other ranks has no `common`. Delays are taken one by one, that which explains most
time first, as long as one is beyond chance: its steps are all, a stretch, one phase of a period, or, last, any in which
the rank stands out. All candidates share one error.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Final

import numpy as np

from perfkit.base.statistics.distributions import chance_of_at_least
from perfkit.base.step_numbers import RESTART
from perfkit.engine.ranks.delay import HALF, LEAST_LAG, LONGEST, MOSTLY, NEARLY_ALL, PARTLY, QUARTER, RARE, Delay
from perfkit.engine.ranks.lateness import (
    COLUMN,
    FALSE_ALARMS,
    MOST_STEPS,
    OWN,
    Bools,
    Floats,
    OwnTimes,
    excess,
    lag_limits,
    rounds_of,
    waited_for_each_ns,
)
from perfkit.engine.ranks.single_steps import in_order, often_late
from perfkit.records.common import Category
from perfkit.records.cross_rank import FEWEST_COMPARED_STEPS
from perfkit.trace.intervals import Ints

_SERIES: Final = (*(name for name in OWN if name != "compute"), None)
"""What is compared: these categories, and the whole own time (None)."""


def find_delays(times: OwnTimes, false_alarms: float = FALSE_ALARMS) -> list[Delay]:
    """Return the delays beyond chance, at most one of each rank.

    Args:
        times: own times of ranks that wait for each other; where only whole steps are known, in any one category.
        false_alarms: accepted probability that chance makes any rank late.
    """
    found, search = _explained(times, false_alarms)
    rest, rows = search.times, list(found.values())
    turns = in_order(times) if all(one.every == 1 for one in rows) else []
    if turns and found.keys() <= {one.row for one in turns}:
        return turns
    return rows + [one for one in in_order(rest) or often_late(rest, rows) if one.row not in found]


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


_Sets = list[tuple[float, list[Delay]]]
"""Delays that are found together, with the time (ns) that they explain."""


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
        self.compared = times.compared * len(_SERIES)
        self._rounds = rounds_of(times)
        self._waits = waited_for_each_ns(times, self._rounds) if times.of("communication").any() else None
        """What the others wait for each rank, shape (ranks, rounds); None if unknown."""
        parts = [name for name in OWN if times.of(name).any()]
        # Where ranks compute, nothing else tells whether they do so for longer: what an operator takes less of, the
        # work between operators may take more of.
        named = parts if len(parts) == 1 else [name for name in parts if name != "compute"]
        self._series = {name: _Series(self, name) for name in (*named, *((None,) if len(parts) > 1 else ()))}

    def best(self, found: dict[int, Delay]) -> list[Delay]:
        """Return the delay that explains most time, or those of ranks that take turns; empty if none is left.

        With it those of other ranks with the same period and category, if nothing explains more of these: of hundreds
        of late ranks, each by itself would take minutes.
        """
        periods = range(1, min(LONGEST, len(self.steps) - 2) + 1)
        sets = [one for series in self._series.values() for every in periods for one in series.candidates(every, found)]
        sets += [one for series in self._series.values() for one in series.stretches(found)]
        taken: list[Delay] = []
        seen: set[int] = set()
        for _, some in sorted(_in_parts(sets), key=lambda one: -one[0]):
            first, is_new = some[0], seen.isdisjoint(one.row for one in some)
            if first.every == 1 and not self.matters(first):
                continue
            seen.update(one.row for one in some)
            if not taken or (is_new and not first.in_turns and _kind(first) == _kind(taken[0])):
                taken += some
        return taken

    def take_away(self, delays: Sequence[Delay]) -> None:
        """Take away by what ranks exceed the others in the steps of their delays, all in one category, or in each."""
        category, times = delays[0].category, self.times
        exposed_ns, transfers_ns = times.exposed_ns.copy(), times.transfers_ns
        names: tuple[Category, ...] = (category,) if category else OWN
        for name in names:
            own = self._series[name].excess if name in self._series else excess(times.of(name))
            for one in delays:
                exposed_ns[one.row, :, COLUMN[name]] -= _in_steps(own[one.row], one)
        if category is None and transfers_ns is not None:
            own, transfers_ns = excess(transfers_ns), transfers_ns.copy()
            for one in delays:
                transfers_ns[one.row] -= _in_steps(own[one.row], one)
        self.times = times._replace(exposed_ns=exposed_ns, transfers_ns=transfers_ns)
        for name in self._series.keys() & {*names, None}:
            self._series[name] = _Series(self, name)

    def matters(self, one: Delay) -> bool:
        """Return whether others wait for the rank's delay."""
        if self._waits is None:
            return True
        lag_ns = self._series[one.category].lag_ns(one)
        delays = self._rounds.sums(np.where(one.late, lag_ns, 0.0))[self._rounds.counted]
        waited = np.clip(self._waits[one.row][self._rounds.counted], -delays, delays)
        return bool(waited.sum() >= QUARTER * delays.sum())


def _in_parts(sets: _Sets) -> _Sets:
    """Return the sets, and of those with the same steps that in a category, which is more precise, if there is any.

    What is left of the whole own time without that is compared later.
    """
    same = defaultdict[tuple[tuple[int, bytes], ...], _Sets](list)
    for one in sets:
        same[tuple((delay.row, delay.late.tobytes()) for delay in one[1])].append(one)
    return [
        (max(time_ns for time_ns, _ in group), max(group, key=lambda one: (one[1][0].category is not None, one[0]))[1])
        for group in same.values()
    ]


def _kind(one: Delay) -> tuple[Category | None, int, bool]:
    return one.category, one.every, one.in_turns


def _in_steps(own: Floats, one: Delay) -> Ints:
    return np.where(one.late, np.maximum(own, 0), 0).astype(np.int64)


class _Series:
    """The own times in one category, or as a whole, and what is judged by them alone; computed where it is needed."""

    def __init__(self, search: _Search, category: Category | None) -> None:
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

    def stretches(self, found: dict[int, Delay]) -> Iterator[tuple[float, list[Delay]]]:
        """Yield delays of steps in succession, such as all from one on, with the time (ns) that they explain."""
        count, least_ns = len(self._search.steps), PARTLY * self._search.wall_ns
        if count < 2 * FEWEST_COMPARED_STEPS:
            return
        rows = np.flatnonzero(self._longer >= FEWEST_COMPARED_STEPS)
        rows = rows[~np.isin(rows, [*found])]
        own = self.excess[rows]
        windows = np.lib.stride_tricks.sliding_window_view(own, FEWEST_COMPARED_STEPS, axis=1)
        level = np.median(windows, axis=2).max(axis=1, initial=0)
        first, last = _longest_stretches(own >= HALF * level[:, np.newaxis])
        length = last - first
        fits = (level >= least_ns) & (np.minimum(length, count - length) >= FEWEST_COMPARED_STEPS)
        for row, a, b in zip(rows[fits].tolist(), first[fits].tolist(), last[fits].tolist(), strict=True):
            at = np.arange(count)
            one = Delay(row, self._category, 1, (at >= a) & (at < b), is_stretch=True)
            if self.lag_ns(one) >= least_ns and self._is_level(one):
                yield self._explains([one]), [one]

    def _is_level(self, one: Delay) -> bool:
        """Return whether so many long steps in succession, and so long ones, are beyond chance, and end at once."""
        lag_ns, own, late = self.lag_ns(one), self.excess[[one.row]], one.late
        first, last = np.flatnonzero(late)[[0, -1]]
        around = (own[0, max(0, first - FEWEST_COMPARED_STEPS) : first], own[0, last + 1 :][:FEWEST_COMPARED_STEPS])
        if any(np.median(part) > QUARTER * lag_ns for part in around if len(part)):
            return False  # it grows, or shrinks
        if not self._recurs(own, np.array([lag_ns]), late)[0]:
            return False
        long = own[0] >= HALF * lag_ns
        many = int(long[late].sum())
        others = self.excess.size - int(np.searchsorted(self._ordered, HALF * lag_ns)) - many
        rate = max((1 + others) / (1 + self.excess.size - late.sum()), long[~late].mean())
        chances = self._chances(len(late))
        if chances * chance_of_at_least(many, int(late.sum()), float(rate)) > RARE:
            return False
        error = self._search.false_alarms / chances
        return bool(lag_ns >= lag_limits(self._values, own, np.array([one.row]), late.astype(np.int64), error)[0, 1])

    @cached_property
    def _longer(self) -> Ints:
        """In how many steps each rank is longer by the smallest lag of a delay of some steps, shape (ranks,)."""
        return np.asarray((self.excess >= PARTLY * self._search.wall_ns).sum(axis=1), np.int64)

    @cached_property
    def _ordered(self) -> Floats:
        return np.sort(self.excess, axis=None)

    def _late(self, every: int, least: float) -> list[Delay]:
        """Return the ranks and phases of a period whose excess is beyond chance, at least `least` of the step."""
        if every not in self._regular:
            self._regular[every] = list(self._beyond_chance(every, least * self._search.wall_ns))
        return self._regular[every]

    def _beyond_chance(self, every: int, least_ns: float) -> Iterator[Delay]:
        phase = self._search.steps[: MOST_STEPS if every > 1 else None] % every
        count, own = np.bincount(phase, minlength=every), self.excess[:, : len(phase)]
        # In half of the steps of its shortest phase, any candidate is late.
        longer = self._longer if every > 1 else (own >= least_ns).sum(axis=1)
        rows = np.flatnonzero(longer >= max(1, int(count.min()) // 2))
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
        sure = possible & (lag >= lag_limits(self._values[:, : len(phase)], own, rows, phase, error))
        for at, number in np.argwhere(sure).tolist():
            yield Delay(int(rows[at]), self._category, every, self._in_phase(every, number))

    def _in_phase(self, every: int, number: int) -> Bools:
        return np.asarray(self._search.steps % every == number)

    def _chances(self, every: int) -> float:
        """Return the number of sets of steps that are compared up to a period, of all ranks and categories.

        As many as there are stretches of that many steps.
        """
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


def _longest_stretches(is_late: Bools) -> tuple[Ints, Ints]:
    """Return the stretch of each row with most late steps less other ones: first step, and the one after the last.

    Args:
        is_late: shape (rows, steps).
    """
    rows = np.arange(len(is_late))
    sums = np.pad(np.cumsum(2 * is_late.astype(np.int64) - 1, axis=1), ((0, 0), (1, 0)))
    lowest = np.minimum.accumulate(sums, axis=1)
    last = (sums - lowest).argmax(axis=1)
    return np.asarray((sums == lowest[rows, last][:, np.newaxis]).argmax(axis=1)), last
