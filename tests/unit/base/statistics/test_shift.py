"""Bounds of a shift: exact for few values, right in as many cases as they claim."""

from math import comb

import numpy as np
import pytest

from perfkit.base.statistics.bootstrap import _distribution, shift_interval


def test_the_distribution_is_that_of_all_orders() -> None:
    assert (_distribution(2, 2) * comb(4, 2)).round().tolist() == [1, 1, 2, 1, 1]
    assert (_distribution(3, 3) * comb(6, 3)).round().tolist() == [1, 1, 2, 3, 3, 3, 3, 2, 1, 1]


def test_three_values_on_each_side_are_the_fewest() -> None:
    assert shift_interval([1, 2, 3], [11, 12, 13]) == (8, 12)
    assert shift_interval([1, 2], [11, 12, 13]) is None
    assert shift_interval([], [1.0]) is None


@pytest.mark.parametrize(("before", "after"), [(3, 3), (3, 7), (5, 30), (40, 40)])
def test_each_bound_holds_in_95_percent(before: int, after: int) -> None:
    draw = np.random.default_rng(3)
    known = [shift_interval(draw.normal(0, 1, before), draw.normal(0.5, 1, after)) for _ in range(400)]
    low, high = zip(*(bounds for bounds in known if bounds), strict=True)
    assert np.mean(np.array(low) <= 0.5) >= 0.92
    assert np.mean(np.array(high) >= 0.5) >= 0.92


def test_long_samples_are_thinned_out() -> None:
    bounds = shift_interval(np.arange(20_000.0), np.arange(20_000.0) + 5_000)
    assert bounds == pytest.approx((5_000, 5_000), abs=500)
