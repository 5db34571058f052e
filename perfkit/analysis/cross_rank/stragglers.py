"""Find the ranks that are late: in every step, in every n-th, in turns, in many, or once.

The others' waiting shows up as *their* communication, so the share of communication alone blames the network for a slow
rank. A straggler is found by its own time instead, which contains no waiting (see `lateness`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from perfkit.analysis.cross_rank.late_in_single_steps import LastRanks, last_ranks, may_be_early, slow_categories
from perfkit.analysis.cross_rank.late_patterns import find_periodic
from perfkit.analysis.cross_rank.late_stretches import find_stretches
from perfkit.analysis.cross_rank.lateness import (
    FALSE_ALARMS,
    OWN,
    Bools,
    Floats,
    LateRank,
    OwnTimes,
    Rounds,
    excess,
    rounds_of,
    surely_late,
    waited_by_all_ns,
    waited_for_each_ns,
    waited_in_rounds_ns,
    without_delays,
)
from perfkit.schema.common import Category
from perfkit.schema.cross_rank import FEWEST_COMPARED_STEPS, CategoryLag, OneOffStraggler, Straggler
from perfkit.stats.binomial import chance_of_at_least

_MIN_LAG_SHARE: Final = 0.03
"""Smallest lag of a straggler, as a share of the step: ranks always differ by a few per cent."""
_MADE_UP: Final = 0.25
"""A rank is not late if less than this share of its lag is left of it in its whole own time ..."""
_MADE_UP_TAIL: Final = 0.05
"""... and its other categories are shorter than the others', beyond chance with this probability of an error."""
_COUNTS_AS_ALL: Final = 0.9
"""Share of the steps from which a rank counts as late in all."""
_CLEARLY_LATE: Final = 0.5
"""Share of the lag from which a rank is late in a step ..."""
_CLEARLY_PROMPT: Final = 0.25
"""... and up to which it is not, in the median of the others, if these are to be told apart ..."""
_ALIKE: Final = 0.1
"""... for which the median deviation of each of the two must be at most this share."""
_MIN_WAITED_SHARE: Final = 0.25
"""Smallest share of the lag that the others must be seen to wait in communication."""
_MIN_ONE_OFF_SHARE: Final = 0.25
"""Smallest lag of a one-off straggler, as a share of the step."""
_MIN_ONE_OFF_RATIO: Final = 5.0
"""Smallest ratio of a one-off lag to the median lag, so that usual differences between ranks do not count."""
MOST_ONE_OFF: Final = 3
"""Such steps that a report lists."""
_OFTEN: Final = 0.1
"""Share of the steps from which a rank that is late without order is a straggler, ..."""
_MANY: Final = 10
"""... or number of them, ..."""
_SAME_RANK: Final = 0.01
"""... if the probability that chance chooses one rank so often is at most this ..."""
_SAME_CATEGORY: Final = 0.9
"""... and at least this share of its delays is in one category."""
_MIN_EXPLAINED_SHARE: Final = 0.25
"""Smallest share of a one-off lag that a category must explain to be named as the cause."""


class Stragglers(NamedTuple):
    """All ranks that are late in more than a single step."""

    ranks: list[Straggler]
    """Largest lag first."""
    gain_ns: int
    """By how much the mean step could be shorter if none of them were late."""


def find_stragglers(times: OwnTimes) -> Stragglers:
    """Return the ranks that are late beyond chance in most steps, every n-th or many, with what their delays cost."""
    if len(times.steps) < FEWEST_COMPARED_STEPS:
        return Stragglers([], 0)
    last = last_ranks(times)
    found = _find_late(times, last)
    if not found:
        return Stragglers([], 0)
    beyond = _Beyond(times, found)
    found = [_only_where_late(one, beyond.of(one, one.category)) for one in found]
    found = [one for one in found if _lag_ns(one, beyond.of(one, one.category)) > 0]
    if not found:
        return Stragglers([], 0)
    lags = [_lag_ns(one, beyond.of(one, one.category)) for one in found]
    told = _late_once(times, last, _usual_ns(last, lags)).among
    removed = np.stack(
        [
            _delays_ns(one, beyond.of(one, one.category), lag, told[one.place])
            for lag, one in zip(lags, found, strict=True)
        ]
    )
    rounds, wall_ns = rounds_of(times), times.wall_ns
    own_ns = rounds.sums(times.own_ns)
    one_at_a_time = bool((np.sum([one.late for one in found], axis=0) == 1).all())
    rows = [
        replace(
            _straggler(times, one, last, lag, wall_ns, _gain_ns(times, rounds, own_ns, [one.place], removed[[index]])),
            also=_also(one, beyond, wall_ns),
            one_at_a_time=one_at_a_time and len(found) > 1,
        )
        for index, (one, lag) in enumerate(zip(found, lags, strict=True))
    ]
    rows.sort(key=lambda row: (-row.lag_ns, row.rank))
    return Stragglers(rows, _gain_ns(times, rounds, own_ns, [one.place for one in found], removed))


def _find_late(times: OwnTimes, last: LastRanks) -> list[LateRank]:
    """Return the ranks that are late by the first rule that finds them: every n-th step, every step, many steps."""
    periodic = {one.place: one for one in find_periodic(times)}
    always = _waited_for(times, _persistent(times))
    found = list((always | {place: _with_always(one, always.get(place)) for place, one in periodic.items()}).values())
    # A rank that is late in one long stretch is late in the median step, too.
    turns = [] if periodic else find_stretches(times, last)
    if turns and {one.place for one in found} <= {one.place for one in turns}:
        always = _late_in_turns_of_others(times, found, turns)
        return [always.get(one.place, one._replace(in_turns=False)) for one in turns] if always else turns
    # What the ranks found so far do in the steps of their delays hides others.
    rest = without_delays(times, found)
    last_of_rest = last_ranks(rest) if found else last
    more = find_stretches(rest, last_of_rest) or _often_late(times, rest, last_of_rest, _usual_lag_ns(last, found))
    known = {one.place for one in found}
    return found + [one for one in more if one.place not in known]


def _with_always(periodic: LateRank, always: LateRank | None) -> LateRank:
    """Return a rank that is late in every n-th step with the other categories in which it is late in most steps."""
    both = (always.category, *always.also) if always else ()
    return periodic._replace(also=tuple(category for category in both if category != periodic.category))


def _late_in_turns_of_others(
    times: OwnTimes, found: Sequence[LateRank], turns: Sequence[LateRank]
) -> dict[int, LateRank]:
    """Return, by index, the ranks that are late in the turns of others, too, which only hide it there.

    Args:
        times: own times.
        found: ranks that are late in the median step.
        turns: ranks that seem to take turns, these among them.
    """
    own = {one.place: one.late for one in turns}
    always = {}
    for one in found:
        beyond, late = excess(times.of(one.category))[one.place], own[one.place]
        if not late.all() and np.median(beyond[~late]) >= _CLEARLY_LATE * np.median(beyond[late]):
            always[one.place] = one
    return always


def _persistent(times: OwnTimes) -> dict[int, LateRank]:
    """Return the ranks that are late in most steps, by index, each in the category in which it is latest."""
    tail = FALSE_ALARMS / (times.compared * len(OWN))
    whole = np.median(excess(times.own_ns), axis=1)
    longer = surely_late(times.own_ns, tail)
    lags: dict[int, dict[Category, float]] = {}
    always = np.ones(len(times.steps), np.bool_)
    for category in OWN:
        values = times.of(category)
        lag = np.median(excess(values), axis=1)
        late = surely_late(values, tail) & (lag >= _MIN_LAG_SHARE * times.wall_ns)
        if category == "compute":  # what one rank computes, another may do in C++ between operators
            late &= longer
        if late.any():
            late &= ~((whole < _MADE_UP * lag) & surely_late(values - times.own_ns, _MADE_UP_TAIL))
        for place in np.flatnonzero(late).tolist():
            lags.setdefault(place, {})[category] = float(lag[place])
    found = {}
    for place, of_rank in lags.items():
        most, *also = sorted(of_rank, key=lambda category: -of_rank[category])
        found[place] = LateRank(place, most, every=1, late=always, in_turns=False, also=tuple(also))
    return found


def _waited_for(times: OwnTimes, found: Mapping[int, LateRank]) -> dict[int, LateRank]:
    """Return the ranks of which the others' communication agrees: they wait on average, or none was recorded.

    Where another rank has hiccups in half of the steps, the others wait only in the rest, so the median is no measure.
    No step counts with more than the lag, for it or against it, or one long hiccup would stand for all steps. Steps
    between which ranks do not meet are waited for together.
    """
    if not found or not times.of("communication").any():
        return dict(found)
    rounds = rounds_of(times)
    beyond = {name: excess(times.of(name)) for name in {one.category for one in found.values()}}
    waited_ns = waited_for_each_ns(times, rounds)

    def is_waited_for(one: LateRank) -> bool:
        most = float(np.median(beyond[one.category][one.place])) * rounds.sizes
        waited = np.clip(waited_ns[one.place], -most, most)[rounds.counted].sum()
        return bool(waited >= _MIN_WAITED_SHARE * most[rounds.counted].sum())

    return {place: one for place, one in found.items() if is_waited_for(one)}


class _Beyond:
    """How much longer late ranks take than those that are never late, compared once for all of them."""

    def __init__(self, times: OwnTimes, found: Sequence[LateRank]) -> None:
        self._times = times
        late = {one.place for one in found}
        self._prompt = [place for place in range(len(times.ranks)) if place not in late]
        self._usual_ns: dict[Category, Floats] = {}
        self._excess_ns: dict[Category, Floats] = {}

    def of(self, one: LateRank, category: Category) -> Floats:
        """Return the excess over these in a category, shape (steps,); over all others in turns, or without these."""
        values = self._times.of(category)
        if one.in_turns or not self._prompt:
            if category not in self._excess_ns:
                self._excess_ns[category] = excess(values)
            return np.asarray(self._excess_ns[category][one.place])
        if category not in self._usual_ns:
            self._usual_ns[category] = np.asarray(np.median(values[self._prompt], axis=0), np.float64)
        return np.asarray(values[one.place] - self._usual_ns[category], np.float64)


def _only_where_late(one: LateRank, beyond: Floats) -> LateRank:
    """Return a rank that is late in most steps with those in which it is, if it clearly is not in the others."""
    if not one.late.all():
        return one
    lag = float(np.median(beyond))
    late = beyond >= _CLEARLY_LATE * lag
    if lag <= 0 or late.mean() >= _COUNTS_AS_ALL or not all(_near(beyond[part], lag) for part in (late, ~late)):
        return one
    return one._replace(late=late) if np.median(beyond[~late]) <= _CLEARLY_PROMPT * lag else one


def _near(beyond: Floats, lag: float) -> bool:
    """Return whether most of these values are alike, compared with a lag."""
    return bool(np.median(np.abs(beyond - np.median(beyond))) <= _ALIKE * lag)


def _lag_ns(one: LateRank, beyond: Floats) -> float:
    """Return the median delay in the steps in which the rank is late."""
    return float(np.median(beyond[one.late]))


def _also(one: LateRank, beyond: _Beyond, wall_ns: float) -> list[CategoryLag]:
    """Return the other categories in which the rank is late in these steps, too, or in most, largest lag first."""
    if one.every > 1:
        one = one._replace(late=np.ones_like(one.late))
    lags = {category: _lag_ns(one, beyond.of(one, category)) for category in one.also}
    least_ns = _MIN_LAG_SHARE * wall_ns
    rows = [CategoryLag(category=name, lag_ns=round(lag)) for name, lag in lags.items() if lag >= least_ns]
    return sorted(rows, key=lambda row: -row.lag_ns)


def _delays_ns(one: LateRank, beyond: Floats, lag_ns: float, is_told: Bools) -> Floats:
    """Return the delay in each step, shape (steps,); that of a step which is told by itself is as long as usual.

    Args:
        one: the late rank.
        beyond: how much longer it takes than the ranks that are never late, shape (steps,).
        lag_ns: its usual delay.
        is_told: whether the rank is a one-off straggler in a step, too, shape (steps,).
    """
    return np.where(one.late, np.where(is_told, lag_ns, np.maximum(beyond, 0)), 0)


def _straggler(
    times: OwnTimes, one: LateRank, last: LastRanks, lag_ns: float, wall_ns: float, gain_ns: int
) -> Straggler:
    return Straggler(
        rank=times.ranks[one.place],
        category=one.category,
        lag_ns=round(lag_ns),
        share=lag_ns / wall_ns,
        every=one.every,
        in_turns=one.in_turns,
        gain_ns=gain_ns,
        steps_late=int(one.late.sum()),
        steps_last=int((last.place == one.place)[one.late].sum()),
        steps=len(times.steps),
    )


def _gain_ns(times: OwnTimes, rounds: Rounds, own_ns: Floats, places: Sequence[int], removed_ns: Floats) -> int:
    """Return by how much the mean step could be shorter without these delays.

    A step is as long as its slowest rank's own time, so with another rank as late nothing is gained, unless this waits,
    too: then ranks meet after one delay and before the other, and each costs the step. Nothing is gained where no rank
    waits. Ranks may wait only in the next step, if the delay follows the last collective, and
    where they meet in some steps only, they wait there for the delays since they met. Whether they wait for those after
    the last meeting is not recorded: these steps do not count, if they are no more than between two meetings.

    Args:
        times: own times.
        rounds: result of `rounds_of`.
        own_ns: their sums over each round, shape (ranks, rounds).
        places: indices of the ranks.
        removed_ns: their delays, shape (these ranks, steps).
    """
    without = own_ns.copy()
    removed = rounds.sums(removed_ns)
    without[places] -= removed
    shorter = own_ns.max(axis=0) - without.max(axis=0)
    waited = np.maximum(waited_in_rounds_ns(times, rounds, places), 0)
    in_turn = np.minimum(removed.sum(axis=0), waited_by_all_ns(times, rounds, places))
    gained = np.maximum(np.minimum(shorter, waited), in_turn)[rounds.counted].sum()
    return round(float(gained / rounds.sizes[rounds.counted].sum()))


def find_one_off_stragglers(times: OwnTimes, stragglers: Stragglers) -> list[OneOffStraggler]:
    """Return the steps in which ranks were late although they usually are not, largest lag first."""
    if len(times.steps) < FEWEST_COMPARED_STEPS:
        return []
    last = last_ranks(times)
    # What is usual among ranks that never meet these says nothing of them.
    usual_ns = _usual_ns(last, [row.lag_ns for row in stragglers.ranks if row.rank in times.ranks])
    return sorted(_late_steps(times, _late_once(times, last, usual_ns)), key=lambda late: -late.lag_ns)


def _usual_ns(last: LastRanks, lags_ns: Sequence[float]) -> float:
    """Return the lag that is usual where some ranks are late by so much in most steps."""
    return max([_usual_lag_ns(last, []), *lags_ns])


def _often_late(times: OwnTimes, rest: OwnTimes, last: LastRanks, usual_ns: float) -> list[LateRank]:
    """Return the rank that is late in many steps, but neither in most nor at a regular distance; empty without one.

    It is late in such steps more often than chance would choose the same one of all ranks, and not nearly as often
    early: then its work varies.

    Args:
        times: own times.
        rest: the same without the delays of those that were found.
        last: its last ranks in each step.
        usual_ns: the usual lag.
    """
    once = _late_once(rest, last, usual_ns)
    steps = list(_late_steps(rest, once._replace(among=once.among & (once.among.sum(axis=0) == 1))))
    if not steps:
        return []
    (rank, count), *_ = Counter(one.rank for one in steps).most_common(1)
    chance = times.compared * chance_of_at_least(count, len(steps), 1 / len(times.ranks))
    if count < min(_OFTEN * len(times.steps), _MANY) or chance > _SAME_RANK:
        return []
    own, place = [one for one in steps if one.rank == rank], times.ranks.index(rank)
    (category, alike), *_ = Counter(one.category for one in own).most_common(1)
    late = np.isin(times.steps, [one.step for one in own])
    beyond = excess(times.own_ns)[place]
    early = int((beyond <= -_CLEARLY_LATE * np.median(beyond[late])).sum())
    if category is None or alike < _SAME_CATEGORY * count or early > _CLEARLY_PROMPT * count:
        return []
    return [LateRank(place, category, 1, late, in_turns=False)]


def _usual_lag_ns(last: LastRanks, found: Sequence[LateRank]) -> float:
    """Return the median lag in the steps in which none of the ranks that were found is late, or in all if none is so.

    Not without their delays: in steps in which the delay of one was taken away, it can no more be later than others.
    """
    others = ~np.any([one.late for one in found], axis=0) if found else np.ones(len(last.lag_ns), np.bool_)
    return float(np.median(last.lag_ns[others if others.any() else slice(None)]))


def _late_once(times: OwnTimes, last: LastRanks, usual_ns: float) -> LastRanks:
    """Return the ranks that are late in a step by far more than usual, among the last of each step."""
    least_ns = max(_MIN_ONE_OFF_SHARE * times.wall_ns, _MIN_ONE_OFF_RATIO * usual_ns)
    far = (last.lag_ns >= least_ns) & ~may_be_early(times, last.among)
    return last._replace(among=last.among & far)


def _late_steps(times: OwnTimes, last: LastRanks) -> Iterator[OneOffStraggler]:
    """Yield the steps in which ranks are late, those in `last`."""
    known = set(times.steps)
    for k in np.flatnonzero(last.among.any(axis=0)).tolist():
        late = np.flatnonzero(last.among[:, k]).tolist()
        slow = slow_categories(times, late, k)
        category, category_ns = slow[0][0], min(ns for _, ns in slow)
        explained = len({name for name, _ in slow}) == 1 and category_ns >= _MIN_EXPLAINED_SHARE * last.lag_ns[k]
        yield OneOffStraggler(
            rank=times.ranks[last.place[k]],
            with_ranks=[times.ranks[place] for place in late if place != last.place[k]],
            step=times.steps[k],
            is_first=times.steps[k] - 1 not in known,
            lag_ns=round(last.lag_ns[k]),
            category=category if explained else None,
            category_ns=category_ns if explained else 0,
        )
