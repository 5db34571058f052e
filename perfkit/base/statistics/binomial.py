"""The binomial distribution."""

import math


def chance_of_at_least(least: int, count: int, rate: float) -> float:
    """Return the probability of `least` of `count` independent events or more, of which each has this rate above 0.

    By logarithms: of thousands of steps, numbers of combinations exceed any float.
    """
    if rate >= 1:
        return 1.0
    ways = (math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(least, count + 1))
    logs = (way + k * math.log(rate) + (count - k) * math.log1p(-rate) for k, way in enumerate(ways, least))
    return math.fsum(map(math.exp, logs))
