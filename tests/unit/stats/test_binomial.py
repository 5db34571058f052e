"""The fewest events beyond chance, against sums of exact fractions."""

from fractions import Fraction
from math import comb

import pytest

from perfkit.stats.binomial import fewest_beyond_chance


@pytest.mark.parametrize("count", [1, 3, 8, 40, 333])
@pytest.mark.parametrize("tail", [0.05, 0.003, 1e-6])
def test_fewest_beyond_chance(count: int, tail: float) -> None:
    def chance(least: int) -> Fraction:
        return Fraction(sum(comb(count, number) for number in range(least, count + 1)), 2**count)

    rare = [least for least in range(count + 1) if chance(least) <= tail]
    assert fewest_beyond_chance(count, tail) == min(rare, default=count)


def test_of_very_many_events_nothing_overflows() -> None:
    # Three standard deviations of half a square root.
    assert fewest_beyond_chance(1_000_000, 0.00135) == pytest.approx(501_500, abs=2)
