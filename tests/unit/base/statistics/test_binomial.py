"""Probabilities of so many events or more, against sums of exact fractions."""

from fractions import Fraction
from math import comb

import pytest

from perfkit.base.statistics.distributions import chance_of_at_least


@pytest.mark.parametrize(("least", "count"), [(2, 3), (1, 4), (0, 5), (5, 5), (1, 1), (30, 40), (200, 333)])
@pytest.mark.parametrize("rate", [0.001, 0.1, 0.5, 0.75, 1.0])
def test_the_chance_of_so_many_events_is_binomial(least: int, count: int, rate: float) -> None:
    p = Fraction(rate)
    exact = sum(comb(count, number) * p**number * (1 - p) ** (count - number) for number in range(least, count + 1))
    assert chance_of_at_least(least, count, rate) == pytest.approx(float(exact), rel=1e-9)


def test_of_very_many_events_nothing_overflows() -> None:
    # Three standard deviations of half a square root.
    assert chance_of_at_least(501_500, 1_000_000, 0.5) == pytest.approx(0.00135, rel=0.01)
