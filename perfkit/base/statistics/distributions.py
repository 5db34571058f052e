"""Quantiles of Student's t distribution, and the binomial distribution, without SciPy."""

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final

_LARGE: Final = 200
"""Degrees of freedom from which the Cornish-Fisher expansion is exact to 1e-6."""


@lru_cache(maxsize=4096)
def upper_quantile(tail: float, df: int) -> float:
    """Return the t with a probability of `tail` above it.

    Args:
        tail: one-sided probability, in (0, 0.5).
        df: degrees of freedom, at least 1.

    Raises:
        ValueError: if either is out of range.
    """
    if not (0 < tail < 0.5 and df >= 1):
        raise ValueError(f"no quantile for a tail of {tail} and {df} degrees of freedom")
    if df > _LARGE:
        return _expansion(NormalDist().inv_cdf(1 - tail), df)
    low, high = 0.0, 1.0
    while upper_tail(high, df) > tail:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if upper_tail(middle, df) > tail else (low, middle)
    return high


def upper_tail(t: float, df: int) -> float:
    """Return the probability above `t` >= 0, by the finite series for whole df (Abramowitz and Stegun 26.7.3-4)."""
    theta = math.atan2(t, math.sqrt(df))
    cos2 = math.cos(theta) ** 2
    odd = df % 2
    term, total = (math.cos(theta) if odd else 1.0), 0.0
    for k in range(1 + odd, df, 2):
        total += term
        term *= cos2 * k / (k + 1)
    if not odd:
        return (1 - math.sin(theta) * total) / 2
    return 0.5 - (theta + math.sin(theta) * total) / math.pi


def _expansion(z: float, df: int) -> float:
    """Return the quantile for many degrees of freedom from the normal one (Abramowitz and Stegun 26.7.5)."""
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / df + second / df**2 + third / df**3


def chance_of_at_least(least: int, count: int, rate: float) -> float:
    """Return the probability of `least` of `count` independent events or more, of which each has this rate above 0.

    By logarithms: of thousands of steps, numbers of combinations exceed any float.
    """
    if rate >= 1:
        return 1.0
    ways = (math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(least, count + 1))
    logs = (way + k * math.log(rate) + (count - k) * math.log1p(-rate) for k, way in enumerate(ways, least))
    return math.fsum(map(math.exp, logs))
