"""The order of ranks, against the exact distribution of all orders, and against ranks that do not differ."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from perfkit.engine.ranks import lateness
from perfkit.engine.ranks.lateness import least_order_sum, order_sums


@pytest.mark.parametrize(("ranks", "steps"), [(3, 3), (4, 4), (5, 2), (2, 8)])
@pytest.mark.parametrize("tail", [0.1, 0.01, 0.004])
def test_a_sum_is_beyond_chance_if_as_many_orders_or_fewer_have_it(ranks: int, steps: int, tail: float) -> None:
    sums = [sum(order) for order in product(range(1 - ranks, ranks, 2), repeat=steps)]
    rare = [one for one in {*sums} if Fraction(sum(other >= one for other in sums), len(sums)) <= tail]
    assert least_order_sum(ranks, steps, tail) == min(rare, default=(ranks - 1) * steps + 2)


def test_of_many_ranks_and_steps_the_sum_is_normal(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = least_order_sum(40, 60, 1e-4)
    least_order_sum.cache_clear()
    monkeypatch.setattr(lateness, "_EXACT", 0)
    assert exact <= least_order_sum(40, 60, 1e-4) <= 1.03 * exact
    least_order_sum.cache_clear()


def test_equal_values_have_the_same_order() -> None:
    values = np.array([[5, 1, 0], [5, 2, 0], [7, 3, 0]])
    assert order_sums(values, np.arange(3)).tolist() == [-1 - 2, -1 + 0, 2 + 2]


@pytest.mark.parametrize("shape", [(4, 5), (8, 20)])
def test_ranks_that_do_not_differ_are_beyond_chance_as_often_as_accepted(shape: tuple[int, int]) -> None:
    draw, runs = np.random.default_rng(3), 2_000
    least, rows = least_order_sum(*shape, 0.01), np.arange(shape[0])
    beyond = sum((order_sums(draw.pareto(1.5, shape), rows) >= least).sum() for _ in range(runs))
    assert 0.004 <= beyond / runs / shape[0] <= 0.012
