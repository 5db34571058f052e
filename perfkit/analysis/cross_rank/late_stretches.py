"""Ranks that take turns at being late: for several steps in a row, say."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from perfkit.analysis.cross_rank.late_in_single_steps import LastRanks
from perfkit.analysis.cross_rank.late_patterns import MIN_SHARE
from perfkit.analysis.cross_rank.lateness import OWN, Bools, Floats, LateRank, OwnTimes, excess
from perfkit.schema.common import Category
from perfkit.stats.binomial import chance_of_at_least
from perfkit.trace.intervals import Ints

_FEWEST: Final = 3
"""Fewest steps in which each of the ranks is late ..."""
_OFTEN: Final = 0.1
"""... and the smallest share of all steps."""
_ALIKE: Final = 0.5
"""Largest deviation of a rank's delays from their median, relative to it ..."""
_MOST: Final = 0.75
"""... of most of them."""
_BETWEEN: Final = 0.25
"""Largest lag in the steps in which none of the ranks is late, relative to the smallest delay ..."""
_NEARLY_ALL: Final = 0.9
"""... in nearly all of them: where work drifts there are lags of all sizes."""
_EXPLAINED: Final = 0.5
"""Smallest share of a rank's delay that is in one category."""
_LONGEST: Final = 16
"""Largest distance of steps that are asked whether the same rank is late."""
_BY_CHANCE: Final = 0.01
"""Accepted probability that ranks which chance chooses follow themselves so often."""


def find_stretches(times: OwnTimes, last: LastRanks) -> list[LateRank]:
    """Return ranks that take turns in an order; empty if chance may choose them step by step.

    Work that varies makes now one rank last and now another, by any amount. Here the delays of a rank are alike, there
    is next to none between, and who is late in a step tells who is late in the next, or some steps on.

    Args:
        times: own times.
        last: their last ranks in each step.
    """
    late = last.lag_ns >= MIN_SHARE * times.wall_ns
    if not late.any():
        return []
    # Several ranks may be late together: each set of ranks is one that takes its turn.
    sets = np.full(len(late), -1, np.int64)
    sets[late] = np.unique(last.among[:, late], axis=1, return_inverse=True)[1].reshape(-1)
    count = np.bincount(sets[late], minlength=1)
    usual = np.flatnonzero(count >= max(_FEWEST, _OFTEN * len(late)))
    if len(usual) < 2 or not _is_ordered(sets, len(times.ranks)):
        return []
    late = np.isin(sets, usual)
    places = np.flatnonzero((last.among & late).any(axis=1)).tolist()
    beyond: dict[Category, Floats] = {name: excess(times.of(name)) for name in OWN}
    found = [_late_rank(beyond, last.lag_ns, place, last.among[place] & late) for place in places]
    delay = min(float(np.median(last.lag_ns[sets == one])) for one in usual)
    return [one for one in found if one] if all(found) and _is_prompt(last.lag_ns[~late], delay) else []


def _is_prompt(lag_ns: Floats, delay_ns: float) -> bool:
    """Return whether there is next to no lag in these steps, compared with a delay."""
    return not len(lag_ns) or bool(np.mean(lag_ns <= _BETWEEN * delay_ns) >= _NEARLY_ALL)


def _is_ordered(sets: Ints, ranks: int) -> bool:
    """Return whether the same ranks are late again at some distance more often than chance would choose them.

    Chance may choose some ranks more often than others, as often as they are late here: one rank that is nearly always
    late follows itself without any order.

    Args:
        sets: number of the set of ranks that is late in each step, shape (steps,); below 0 without one.
        ranks: number of ranks.
    """
    count = np.bincount(sets[sets >= 0])
    rate = max(1 / ranks, float((count**2).sum()) / float(count.sum()) ** 2)
    longest = min(_LONGEST, len(sets) // 2)
    for distance in range(1, longest + 1):
        first, second = sets[:-distance], sets[distance:]
        both = (first >= 0) & (second >= 0)
        again = int((both & (first == second)).sum())
        # One half of the error for stretches, the other for all longer distances.
        accepted = _BY_CHANCE / 2 if distance == 1 else _BY_CHANCE / 2 / (longest - 1)
        if again and chance_of_at_least(again, int(both.sum()), rate) <= accepted:
            return True
    return False


def _late_rank(beyond: Mapping[Category, Floats], lag_ns: Floats, place: int, late: Bools) -> LateRank | None:
    """Return the rank with the one category in which it is late; None if its delays are not alike, or of many kinds.

    Args:
        beyond: by how much each rank exceeds the others, by category, each of shape (ranks, steps).
        lag_ns: lag in each step, shape (steps,).
        place: index of the rank.
        late: whether it is late, shape (steps,).
    """
    lags = lag_ns[late]
    delay = float(np.median(lags))
    longer = {name: float(np.median(beyond[name][place, late])) for name in OWN}
    category = max(OWN, key=lambda name: longer[name])
    alike = np.mean(np.abs(lags - delay) <= _ALIKE * delay) >= _MOST
    if not alike or longer[category] < _EXPLAINED * delay:
        return None
    return LateRank(place, category, every=1, late=late, in_turns=True)
