"""Bounds of the difference between two samples, from the ranks of their values (Mann and Whitney 1947).

Exact for as few as three values on each side, where a bootstrap has too few distinct resamples.
"""

from collections.abc import Sequence
from functools import lru_cache
from math import sqrt
from typing import Final

import numpy as np

from perfkit.base.statistics.bootstrap import Floats

_TAIL: Final = 0.05
"""Probability that the difference lies beyond one of the bounds."""
_NORMAL_QUANTILE: Final = 1.6449
_MOST_VALUES: Final = 1000
"""Longer samples are thinned out evenly, which widens the bounds: memory grows with the product of their lengths."""
_MOST_EXACT: Final = 400
"""Largest product of the lengths for which the distribution is computed exactly."""


def shift_interval(before: Sequence[float] | Floats, after: Sequence[float] | Floats) -> tuple[float, float] | None:
    """Return a lower and an upper bound of the shift from `before` to `after`, each with 95 % confidence.

    The bounds are values in order among all differences between a value after and a value before (Lehmann 1963).
    None if the samples are too short: fewer than three values on each side, or one against nineteen.
    """
    old, new = _thinned(before), _thinned(after)
    pairs = len(old) * len(new)
    beyond = _tail_count(len(old), len(new)) if pairs else 0
    if beyond < 1:
        return None
    differences = np.sort(np.subtract.outer(new, old), axis=None)
    return float(differences[beyond - 1]), float(differences[pairs - beyond])


def _thinned(values: Sequence[float] | Floats) -> Floats:
    known = np.sort(np.asarray(values, np.float64))
    if len(known) <= _MOST_VALUES:
        return known
    places = np.linspace(0, len(known) - 1, _MOST_VALUES).astype(np.int64)
    return np.asarray(known[places])


@lru_cache(maxsize=256)
def _tail_count(first: int, second: int) -> int:
    """Return the largest j for which U, the number of differences below the shift, is below j with at most `_TAIL`."""
    pairs = first * second
    if pairs > _MOST_EXACT:
        deviation = sqrt(pairs * (first + second + 1) / 12)
        return int(pairs / 2 - _NORMAL_QUANTILE * deviation)
    probabilities = _distribution(first, second)
    return int(np.searchsorted(np.cumsum(probabilities), _TAIL * (1 + 1e-12), side="right"))


def _distribution(first: int, second: int) -> Floats:
    """Return the probability of each value of U, shape (first * second + 1,).

    The number of ways to reach each is a coefficient of the Gaussian binomial, the product over i up to `first` of
    (1 - q^(second + i)) / (1 - q^i).
    """
    ways = np.zeros(first * second + 1)
    ways[0] = 1
    for i in range(1, first + 1):
        for place in range(len(ways) - 1, second + i - 1, -1):
            ways[place] -= ways[place - second - i]
        for place in range(i, len(ways)):
            ways[place] += ways[place - i]
    return np.asarray(ways / ways.sum())
