"""The rank-sum test against counting all ways to draw the values, and its limits."""

from itertools import combinations

import numpy as np
import pytest

from perfkit.stats.rank_sum import chance_of_larger
from perfkit.trace.intervals import Ints


def column(*values: int) -> Ints:
    return np.array(values, np.int64)[:, np.newaxis]


def counted(values: Ints, others: Ints) -> float:
    """Return the share of all choices of as many values that rank as high."""
    every = np.concatenate([values, others]).ravel()

    def larger(chosen: tuple[int, ...]) -> int:
        left = np.delete(every, chosen)
        return sum(int((every[one] > left).sum()) for one in chosen)

    drawn = [larger(chosen) for chosen in combinations(range(len(every)), len(values))]
    return sum(one >= larger(tuple(range(len(values)))) for one in drawn) / len(drawn)


@pytest.mark.parametrize(
    ("values", "others"),
    [
        (column(5, 6, 7, 8), column(1, 2, 3, 4)),
        (column(2, 6, 7, 8, 10), column(1, 3, 4, 5, 9)),
        (column(1, 4, 6), column(2, 3, 5, 7)),
        (column(8, 9, 12, 13, 14, 15), column(1, 2, 3, 4, 10, 11)),
    ],
)
def test_it_is_close_to_counting(values: Ints, others: Ints) -> None:
    assert chance_of_larger(values, others) == pytest.approx(counted(values, others), rel=0.1, abs=0.01)


def test_values_are_compared_within_their_column_only() -> None:
    values, others = np.array([[2, 200], [4, 400]]), np.array([[1, 100], [3, 300]])
    each = [chance_of_larger(values[:, [at]], others[:, [at]]) for at in range(2)]
    assert each[0] == each[1]
    assert 0.2 < chance_of_larger(values, others) < each[0]


def test_an_outlier_is_one_value() -> None:
    usual, others = column(2, 4, 6, 8), column(1, 3, 5, 7)
    assert chance_of_larger(column(2, 4, 6, 8_000_000), others) == chance_of_larger(usual, others)


def test_equal_values_tell_nothing() -> None:
    same = np.full((4, 3), 7)
    assert chance_of_larger(same, same) >= 0.5


@pytest.mark.parametrize("shapes", [((0, 2), (3, 2)), ((3, 2), (3, 1)), ((3, 0), (3, 0))])
def test_what_has_no_ranks(shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    values, others = (np.zeros(shape, np.int64) for shape in shapes)
    with pytest.raises(ValueError, match="no ranks"):
        chance_of_larger(values, others)
