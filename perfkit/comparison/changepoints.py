"""Where a series of runs moves to another level, and only where that is more than noise.

Pettitt's change-point test (1979) on the ranks of the figures, with its distribution taken from permutations of the
series itself, so that looking at every place at once is paid for; then the same on both sides of what was found. Of
fewer than eight runs no order of two levels is rarer than one in twenty, and nothing is ever claimed.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.stats.bootstrap import FEWEST_RUNS, ratio_interval

FEWEST_FOR_CHANGE_POINT: Final = 8
"""Runs in which a shift can be told from noise."""
_DRAWS: Final = 4000
_FEWEST_DRAWS: Final = 400
_MOST_CELLS: Final = 8_000_000  # of a long series fewer permutations, so that memory does not follow it
_SEED: Final = 20_260_102
_LIMIT: Final = 0.05

Floats = NDArray[np.float64]


class Found(NamedTuple):
    """A shift between two runs."""

    place: int
    """Index of the first run after it."""
    p_value: float
    interval: tuple[float, float]
    """95 % bootstrap interval of median after / median before, up to the shifts next to it."""


def find_change_points(values: Sequence[float]) -> list[Found]:
    """Return the shifts of a series in order."""
    places = sorted(_places(values, 0, _LIMIT))
    ends = [0, *(place for place, _ in places), len(values)]
    found = []
    for (place, p_value), start, end in zip(places, ends, ends[2:], strict=False):
        interval = ratio_interval(values[start:place], values[place:end])
        if interval and not interval[0] <= 1 <= interval[1]:
            found.append(Found(place, p_value, interval))
    return found


def _places(values: Sequence[float], start: int, limit: float) -> Iterator[tuple[int, float]]:
    if len(values) < FEWEST_FOR_CHANGE_POINT:
        return
    place, p_value = _test(values)
    if p_value > limit:
        return
    yield start + place, p_value
    # Looking on either side takes two chances to be wrong: each gets half.
    yield from _places(values[:place], start, limit / 2)
    yield from _places(values[place:], start + place, limit / 2)


def _test(values: Sequence[float]) -> tuple[int, float]:
    """Return the likeliest place of a shift, and how often chance alone would show one as clear."""
    order = _ranks(np.array(values, dtype=np.float64))
    statistic = _pettitt(order[np.newaxis])[0]
    draws = max(_FEWEST_DRAWS, min(_DRAWS, _MOST_CELLS // len(order)))
    shuffled = np.random.default_rng(_SEED).permuted(np.tile(order, (draws, 1)), axis=1)
    place = int(statistic.argmax())
    as_clear = np.count_nonzero(_pettitt(shuffled).max(axis=1) >= statistic[place])
    return place + FEWEST_RUNS, (1 + int(as_clear)) / (1 + draws)


def _ranks(values: Floats) -> Floats:
    """Return each value's rank from 1; equal ones share theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    shared: Floats = (ends - (count - 1) / 2)[place]
    return shared


def _pettitt(ranks: Floats) -> Floats:
    """Return |U| of every split with enough runs on both sides; a row a series."""
    length = ranks.shape[1]
    split = np.arange(1, length)
    statistic: Floats = np.abs(2 * np.cumsum(ranks, axis=1)[:, :-1] - split * (length + 1))
    return statistic[:, FEWEST_RUNS - 1 : length - FEWEST_RUNS]
