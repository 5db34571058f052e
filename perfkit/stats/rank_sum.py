"""Whether one set of values is larger than another beyond chance, by ranks alone: outliers count as one value each."""

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from perfkit.stats.bootstrap import Floats

_Ints = NDArray[np.int64]


def chance_of_larger(values: _Ints | Floats, others: _Ints | Floats) -> float:
    """Return the probability that values of one distribution rank at least as high among the others as these do.

    The Wilcoxon rank-sum test, one-sided, with its sum over columns (van Elteren): values are only compared with those
    of the same column, so that what moves a whole column tells nothing. By the normal approximation, with its
    correction for whole ranks; equal values share their rank.

    Args:
        values: shape (m, k).
        others: shape (n, k).

    Raises:
        ValueError: if one of them is empty, or they have unequal numbers of columns.
    """
    if values.shape[1] != others.shape[1] or not values.size or not others.size:
        raise ValueError(f"no ranks for values of shapes {values.shape} and {others.shape}")
    (m, columns), n = values.shape, len(others)
    larger = sum(_pairs(values[:, column], others[:, column]) for column in range(columns))
    spread = np.sqrt(columns * m * n * (m + n + 1) / 12)
    return 1 - NormalDist().cdf((larger - columns * m * n / 2 - 0.5) / float(spread))


def _pairs(values: NDArray[np.generic], others: NDArray[np.generic]) -> float:
    """Return the number of pairs in which the value is larger than the other; equal ones count half."""
    ordered = np.sort(others)
    below, upto = (np.searchsorted(ordered, values, side=side) for side in ("left", "right"))
    return float((below + upto).sum()) / 2
