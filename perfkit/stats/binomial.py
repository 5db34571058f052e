"""The binomial distribution of events that are as likely as not."""

import math


def fewest_beyond_chance(count: int, tail: float) -> int:
    """Return the fewest of `count` events, each with probability one half, that occur by chance at most so seldom.

    By logarithms: of thousands of events, numbers of combinations exceed any float.

    Args:
        count: number of events, at least one.
        tail: accepted probability of as many or more, below one half.

    Returns:
        `count` if even all of them occur more often.
    """
    log_all, chance, least = count * math.log(2), 0.0, count
    for number in range(count, 0, -1):
        ways = math.lgamma(count + 1) - math.lgamma(number + 1) - math.lgamma(count - number + 1)
        chance += math.exp(ways - log_all)
        if chance > tail:
            break
        least = number
    return least
