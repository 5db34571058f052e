"""Pettitt's change-point test (1979), with a permutation distribution.

The distribution of the statistic is taken from permutations of the series itself, so the p-value accounts for testing
every place at once.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.stats.bootstrap import Floats

_DRAWS: Final = 4000
_MIN_DRAWS: Final = 400
_MAX_CELLS: Final = 8_000_000  # a long series gets fewer permutations, so that memory does not grow with it
_SEED: Final = 20_260_102


def pettitt_test(values: NDArray[np.float64], segment: int) -> tuple[int, float]:
    """Return the likeliest change point and its p-value.

    Args:
        values: the series, in order.
        segment: fewest values on either side of a change point.

    Returns:
        Index of the first value after the change, and how often chance alone would show a change as clear.
    """
    order = _ranks(values)
    statistic = _statistic(order[np.newaxis], segment)[0]
    draws = max(_MIN_DRAWS, min(_DRAWS, _MAX_CELLS // len(order)))
    shuffled = np.random.default_rng(_SEED).permuted(np.tile(order, (draws, 1)), axis=1)
    place = int(statistic.argmax())
    as_clear = np.count_nonzero(_statistic(shuffled, segment).max(axis=1) >= statistic[place])
    return place + segment, (1 + int(as_clear)) / (1 + draws)


def _ranks(values: Floats) -> Floats:
    """Return each value's rank from 1; equal values share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    shared: Floats = (ends - (count - 1) / 2)[place]
    return shared


def _statistic(ranks: Floats, segment: int) -> Floats:
    """Return |U| of every split with enough values on both sides; one row per series."""
    length = ranks.shape[1]
    split = np.arange(1, length)
    statistic: Floats = np.abs(2 * np.cumsum(ranks, axis=1)[:, :-1] - split * (length + 1))
    return statistic[:, segment - 1 : length - segment]


def pettitt_bound(values: NDArray[np.float64], segment: int) -> tuple[int, float]:
    """Return the likeliest change point and an upper bound of its p-value, by Pettitt's formula.

    The bound is 2 exp(-6 K^2 / (n^3 + n^2)), without permutations: for many or long series, of at least 24 values.

    Args:
        values: the series, in order.
        segment: fewest values on either side of a change point.
    """
    length = len(values)
    statistic = _statistic(_ranks(values)[np.newaxis], segment)[0]
    place = int(statistic.argmax())
    exponent = -6 * float(statistic[place]) ** 2 / (length**3 + length**2)
    return place + segment, min(1.0, 2 * math.exp(exponent))
