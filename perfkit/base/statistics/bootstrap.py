"""Intervals of means and medians by bootstrap (Efron 1979), and of shifts by ranks, for everything that compares runs.

A shift between two samples is bounded by the ranks of their values (Mann and Whitney 1947): exact for as few as three
values on each side, where a bootstrap has too few distinct resamples.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isfinite, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

FEWEST_RUNS: Final = 3
"""Fewest repeats for resampling whole runs rather than steps."""
FEWEST_STEPS: Final = 5
"""Fewest steps for resampling the steps of one run."""
DRAWS: Final = 4000
_SEED: Final = 20_260_101  # the same runs give the same interval
_INTERVAL: Final = (2.5, 97.5)

Floats = NDArray[np.float64]
Resample = Callable[[Sequence[float] | Floats, "np.random.Generator"], Floats]


def generator(stream: int = 0) -> "np.random.Generator":
    """Return the random generator of a stream; different streams are independent."""
    return np.random.default_rng([_SEED, stream])


_MOST_DRAWN: Final = 1 << 20
"""Values drawn at once: 8 MiB."""


def means(values: Sequence[float] | Floats, draw: "np.random.Generator") -> Floats:
    """Return the means of `DRAWS` resamples of `values`, shape (DRAWS,)."""
    known = np.asarray(values, np.float64)
    resamples = max(1, _MOST_DRAWN // len(known))
    found = [
        known[draw.integers(len(known), size=(min(resamples, DRAWS - start), len(known)))].mean(axis=1)
        for start in range(0, DRAWS, resamples)
    ]
    return np.concatenate(found)


def medians(values: Sequence[float] | Floats, draw: "np.random.Generator") -> Floats:
    """Return the medians of `DRAWS` resamples of `values`, shape (DRAWS,).

    Nothing is resampled explicitly. A value drawn with replacement is `sorted[floor(n U)]` with U uniform, so the
    median of n draws follows from an order statistic of n uniform numbers, which has a beta distribution.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    count = len(ordered)
    lower = (count + 1) // 2
    first = draw.beta(lower, count + 1 - lower, size=DRAWS)
    if count % 2:
        return _at(ordered, first)
    second = first + (1 - first) * draw.beta(1, count - lower, size=DRAWS)
    middle: Floats = (_at(ordered, first) + _at(ordered, second)) / 2
    return middle


def _at(ordered: Floats, uniform: Floats) -> Floats:
    return ordered[np.minimum((uniform * len(ordered)).astype(np.int64), len(ordered) - 1)]


def interval(draws: Floats) -> tuple[float, float]:
    """Return the 95 % percentile interval of bootstrap draws."""
    low, high = np.percentile(draws, _INTERVAL, method="nearest")
    return float(low), float(high)


def mean_interval(values: Sequence[float] | Floats) -> tuple[float, float]:
    """Return the 95 % interval of the mean."""
    return interval(means(values, generator()))


def median_interval(values: Sequence[float] | Floats) -> tuple[float, float]:
    """Return the 95 % interval of the median."""
    return interval(medians(values, generator()))


def ratio_interval(
    before: Sequence[float] | Floats, after: Sequence[float] | Floats, resample: Resample = medians
) -> tuple[float, float] | None:
    """Return the 95 % interval of median(after) / median(before); None if unbounded because `before` may be 0."""
    draw = generator()
    old, new = (resample(values, draw) for values in (before, after))
    low, high = interval(np.divide(new, old, out=np.full(DRAWS, np.inf), where=old > 0))
    return (low, high) if isfinite(high) else None


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
