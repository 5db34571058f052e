"""Pettitt's test: a clear step is found where it is, and equal values show none."""

import numpy as np

from perfkit.base.statistics.series import pettitt_test


def test_a_clear_step_is_found_where_it_is() -> None:
    place, p_value = pettitt_test(np.array([10.0, 11, 10, 12, 11, 20, 21, 22, 20, 21]), 3)
    assert place == 5
    assert p_value < 0.05


def test_equal_values_show_no_change() -> None:
    _, p_value = pettitt_test(np.full(12, 5.0), 3)
    assert p_value == 1


def test_each_side_keeps_the_fewest_values() -> None:
    place, _ = pettitt_test(np.array([50.0, 1, 2, 1, 2, 1, 2, 1]), 3)
    assert 3 <= place <= 5


def test_the_same_values_give_the_same_p_value() -> None:
    values = np.random.default_rng(1).normal(0, 1, 20)
    assert pettitt_test(values, 3) == pettitt_test(values, 3)
