"""Ranks that are late in every n-th step only, and ranks that take turns at it."""

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from perfkit.analysis.cross_rank.lateness import (
    FALSE_ALARMS,
    MEDIAN_ERROR,
    OWN,
    Bools,
    Floats,
    LateRank,
    OwnTimes,
    degrees_of_freedom,
    excess,
    median_variance,
    pooled_noise_ns,
    waited_ns,
    without_delays,
)
from perfkit.schema.common import Category
from perfkit.stats.binomial import chance_of_at_least
from perfkit.stats.student_t import upper_quantile
from perfkit.trace.intervals import Ints

MIN_SHARE: Final = 0.1
"""Smallest delay in a step, as a share of the step: small pauses come back by chance."""
_LONGEST: Final = 16
"""Longest period that is tried."""
_MOST_STEPS: Final = 4096
"""The search looks at this many steps."""
_FEWEST: Final = 2
"""A delay must come back at least this often on one rank, or go on this long after all ranks had their turn."""
_REGULAR: Final = 0.9
"""Smallest share of the steps that must fit the period."""
_ALIKE: Final = 0.5
"""Largest deviation of a delay from their median, relative to it ..."""
_ALIKE_TWICE: Final = 0.15
"""... and if there are only two, which may be a coincidence."""
_WAITED: Final = 0.5
"""Smallest share of the delay that the others must be seen to wait."""
_WAITED_IN_TURN: Final = 0.25
"""The same of the last ranks of a turn: a hiccup of another rank hides that it waits, as one hides the delay itself."""
_MOST: Final = 0.75
"""Smallest share of the delays that are so."""
_REST: Final = 0.25
"""Largest median excess in the other steps, relative to the delay."""


class _Category(NamedTuple):
    """A category in which some rank has long steps."""

    name: Category
    values: Ints
    """Own times, shape (ranks, steps)."""
    beyond: Floats
    """Their excess over the other ranks."""
    ranks: int
    """Number of ranks that are compared in the run."""


def find_periodic(times: OwnTimes) -> list[LateRank]:
    """Return the ranks that are late in every n-th step, each by the shortest period that fits.

    The delays of those that are found are taken away before longer periods are tried: where several ranks are late in
    one step, the rest would be hidden.
    """
    rest = times.until(_MOST_STEPS)
    least_ns = MIN_SHARE * rest.wall_ns
    categories = _long_in(rest, least_ns)
    steps, waited = np.array(rest.steps), waited_ns(rest) if categories else None
    if waited is None:
        return []
    found: dict[int, LateRank] = {}
    for period in range(2, min(_LONGEST, len(steps) - _FEWEST) + 1):
        rows = [row for one in categories for row in _with_period(one, steps % period, waited, least_ns)]
        # Of several categories, the one with the largest delay.
        rows.sort(key=lambda row: max(one.beyond[row.place].max() for one in categories if one.name == row.category))
        new = {row.place: row for row in rows if row.place not in found}
        if new:
            found |= new
            rest = without_delays(rest, new.values())
            categories = _long_in(rest, least_ns)
    return [row._replace(late=_in_all_steps(times, row)) for row in found.values()]


def _long_in(times: OwnTimes, least_ns: float) -> list[_Category]:
    """Return the categories in which some rank has long steps."""
    every = (_Category(name, times.of(name), excess(times.of(name)), times.compared) for name in OWN)
    return [one for one in every if (one.beyond >= least_ns).any()]


def _in_all_steps(times: OwnTimes, one: LateRank) -> Bools:
    phase = np.array(times.steps) % one.every
    return np.asarray(phase == phase[int(one.late.argmax())])


def _with_period(one: _Category, phase: Ints, waited: Floats, least_ns: float) -> Iterator[LateRank]:
    """Yield the ranks whose delays in this category are all in the same phase, shape (steps,)."""
    cells = _late_cells(one, phase, least_ns)
    period = cells.shape[1]
    once = {place: int(cells[place].argmax()) for place in np.flatnonzero(cells.sum(axis=1) == 1).tolist()}
    fitting, explained = {}, np.zeros(one.beyond.shape, np.bool_)
    for place, number in once.items():
        beyond, late = one.beyond[place], phase == number
        if not _comes_back(beyond, late):
            continue
        explained[place] = late
        if _is_waited_for(beyond, waited[place], late):
            fitting[place] = late
    phases = {place: once[place] for place in fitting}
    rest = _rest_of_turn(one, phase, waited, phases) if 2 * period <= len(phase) else {}
    turns = len(phases) + len(rest) == period == len({*phases.values(), *rest.values()})
    if turns:
        fitting |= {place: phase == number for place, number in rest.items()}
        for place, late in fitting.items():
            explained[place] = late
    for place, late in fitting.items():
        alone = 2 * period <= len(phase) and _no_coincidence(one.beyond[place], late)
        if (turns or alone) and _stands_out(one, place, period, explained):
            yield LateRank(place, one.name, period, late, turns)


def _rest_of_turn(one: _Category, phase: Ints, waited: Floats, known: dict[int, int]) -> dict[int, int]:
    """Return the ranks whose turn the phases without a late rank seem to be, with their phases; empty if not for all.

    Once at least half of a turn is beyond chance, the rest need not be so by itself: one hiccup would hide a rank, and
    leave the others named as if they were late alone.

    Args:
        one: the category.
        phase: phase of each step, shape (steps,).
        waited: what the others wait for each rank, shape (ranks, steps).
        known: the ranks that are late beyond chance, with their phases.
    """
    missing = set(range(int(phase.max()) + 1)) - set(known.values())
    if not missing or len(missing) > len(known):
        return {}
    delay = float(np.median([np.median(one.beyond[place, phase == number]) for place, number in known.items()]))
    found = {}
    for number in missing:
        late = phase == number
        place = int(np.median(one.beyond[:, late], axis=1).argmax())
        beyond = one.beyond[place]
        long = beyond >= _ALIKE * delay
        if (
            place in known
            or long[late].mean() < _MOST
            or long[~late].mean() > 1 - _REGULAR
            or not _is_waited_for(beyond, waited[place], late, _WAITED_IN_TURN)
        ):
            return {}
        found[place] = number
    return found


def _late_cells(one: _Category, phase: Ints, least_ns: float) -> Bools:
    """Return for each rank and phase whether the rank is late in it beyond chance, shape (ranks, phases)."""
    (ranks, steps), count = one.values.shape, np.bincount(phase)
    period = len(count)
    if not count.all() or period >= steps:
        return np.zeros((ranks, period), np.bool_)
    middle = np.stack([np.median(one.beyond[:, phase == number], axis=1) for number in range(period)], axis=1)
    late = middle >= least_ns
    if not late.any():
        return late
    noise = max(pooled_noise_ns(one.values, phase) * math.sqrt(1 + median_variance(ranks - 1)), 1.0)
    # As many pairs of rank and phase as the search compares, over all periods up to this one.
    compared = one.ranks * len(OWN) * period * (period + 1) // 2
    limit = upper_quantile(FALSE_ALARMS / compared, degrees_of_freedom(ranks, steps, period))
    return np.asarray(late & (middle * np.sqrt(count) > limit * MEDIAN_ERROR * noise))


def _comes_back(beyond: Floats, late: Bools) -> bool:
    """Return whether a rank is late by about the same in these steps, and not in the others."""
    delay = float(np.median(beyond[late]))
    same = np.abs(beyond[late] - delay) <= _ALIKE * delay
    between = np.where(late, True, beyond < delay / 2).mean() >= _REGULAR
    return bool(same.mean() >= _MOST and between and np.median(beyond[~late]) <= _REST * delay)


def _no_coincidence(beyond: Floats, late: Bools) -> bool:
    """Return whether there are more than two delays, or two that are nearly the same."""
    return bool(late.sum() > _FEWEST or np.ptp(beyond[late]) <= 2 * _ALIKE_TWICE * np.median(beyond[late]))


def _stands_out(one: _Category, place: int, period: int, explained: Bools) -> bool:
    """Return whether so many long steps would hardly fall on one phase of one rank by chance.

    Where work varies (sentences, experts), any rank has long steps now and then, and with many ranks and periods
    to choose from some of them are equally far apart. The more long steps there are besides, the more must be in phase.

    Args:
        one: the category.
        place: index of the rank.
        period: of its delays.
        explained: the steps in which ranks take longer with this period, shape (ranks, steps).
    """
    late = explained[place]
    long = one.beyond >= _ALIKE * np.median(one.beyond[place, late])
    besides = long & ~explained
    if not besides.any():
        return True
    rate = max(besides.sum() / (~explained).sum(), besides[place].sum() / (~late).sum())
    count, least = int(late.sum()), int(long[place, late].sum())
    chance = chance_of_at_least(least, count, float(rate))
    return bool(chance * one.ranks * period * (period + 1) / 2 <= FALSE_ALARMS)


def _is_waited_for(beyond: Floats, waited: Floats, late: Bools, share: float = _WAITED) -> bool:
    """Return whether the others wait for the rank in these steps: hiccups of several ranks may hide each other."""
    seen = late & (np.arange(len(late)) < len(late) - 1)
    # Of the last step nobody knows: the others may wait in the step after it.
    return not seen.any() or bool(np.median(waited[seen]) >= share * np.median(beyond[late]))
