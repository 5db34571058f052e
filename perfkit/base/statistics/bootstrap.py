"""Bootstrap of medians (Efron 1979), for everything that compares runs."""

from collections.abc import Sequence
from math import isfinite
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


def generator(stream: int = 0) -> np.random.Generator:
    """Return the random generator of a stream; different streams are independent."""
    return np.random.default_rng([_SEED, stream])


def medians(values: Sequence[float] | Floats, draw: np.random.Generator) -> Floats:
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


def median_interval(values: Sequence[float] | Floats) -> tuple[float, float]:
    """Return the 95 % interval of the median."""
    return interval(medians(values, generator()))


def ratio_interval(before: Sequence[float] | Floats, after: Sequence[float] | Floats) -> tuple[float, float] | None:
    """Return the 95 % interval of median(after) / median(before); None if unbounded because `before` may be 0."""
    draw = generator()
    old, new = (medians(values, draw) for values in (before, after))
    low, high = interval(np.divide(new, old, out=np.full(DRAWS, np.inf), where=old > 0))
    return (low, high) if isfinite(high) else None
