"""Quantiles of Student's t against published tables."""

from statistics import NormalDist

import pytest

from perfkit.base.statistics.distributions import upper_quantile, upper_tail


@pytest.mark.parametrize(
    ("tail", "df", "value"),
    [
        (0.025, 1, 12.706),
        (0.025, 2, 4.303),
        (0.005, 3, 5.841),
        (0.05, 4, 2.132),
        (0.025, 10, 2.228),
        (0.005, 30, 2.750),
        (0.0005, 120, 3.373),
        (0.025, 1000, 1.962),
    ],
)
def test_quantiles_are_those_of_the_tables(tail: float, df: int, value: float) -> None:
    assert upper_quantile(tail, df) == pytest.approx(value, abs=6e-4)


@pytest.mark.parametrize("tail", [0.3, 0.01, 1e-6])
def test_series_and_expansion_meet_and_tend_to_the_normal(tail: float) -> None:
    assert upper_quantile(tail, 200) == pytest.approx(upper_quantile(tail, 201), rel=1e-3)
    assert upper_quantile(tail, 10**8) == pytest.approx(NormalDist().inv_cdf(1 - tail), rel=1e-6)
    assert upper_tail(upper_quantile(tail, 7), 7) == pytest.approx(tail, rel=1e-6)


@pytest.mark.parametrize(("tail", "df"), [(0.0, 3), (0.5, 3), (0.01, 0)])
def test_what_has_no_quantile(tail: float, df: int) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        upper_quantile(tail, df)
