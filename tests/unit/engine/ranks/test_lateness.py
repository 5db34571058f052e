"""Which numbers of steps are beyond chance, against sums of exact fractions."""

from fractions import Fraction
from math import comb

import numpy as np
import pytest

from perfkit.base.statistics.distributions import chance_of_at_least
from perfkit.engine.ranks import lateness


@pytest.mark.parametrize("count", [2, 3, 8, 40, 333])
@pytest.mark.parametrize("tail", [0.05, 0.003, 1e-6])
def test_a_number_is_beyond_chance_if_as_many_or_more_are_so_rare_or_it_is_all(count: int, tail: float) -> None:
    def is_rare(number: int) -> bool:
        return Fraction(sum(comb(count, one) for one in range(number, count + 1)), 2**count) <= tail

    for numbers in (np.arange(count + 1), np.arange(count)[::3], np.array([count, 0, count]), np.array([count // 2])):
        expected = [is_rare(number) or number == count for number in numbers.tolist()]
        assert lateness._beyond_chance(numbers, count, tail).tolist() == expected


def test_of_many_ranks_few_chances_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(least: int, count: int, rate: float) -> float:
        asked.append(least)
        return chance_of_at_least(least, count, rate)

    monkeypatch.setattr(lateness, "chance_of_at_least", counted)
    numbers = np.random.default_rng(1).binomial(20_000, 0.5, 1_000)
    late = lateness._beyond_chance(numbers, 20_000, 0.05 / 4_000)
    assert not late.any()
    assert len(asked) <= 10
