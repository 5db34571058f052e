"""The spread of means of short autocorrelated series against generated ones."""

import numpy as np
import pytest

from perfkit.engine.pipelines.balance import autocorrelation, chance_spread


def series(rho: float, count: int, length: int) -> np.ndarray:
    values = np.random.default_rng(13).standard_normal((count, length))
    for at in range(1, length):
        values[:, at] = rho * values[:, at - 1] + np.sqrt(1 - rho**2) * values[:, at]
    return values


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.8, 0.95])
def test_the_autocorrelation_of_short_series(rho: float) -> None:
    assert autocorrelation(series(rho, 400, 24)) == pytest.approx(rho, abs=0.1)


@pytest.mark.parametrize("rho", [0.8, 0.9])
@pytest.mark.parametrize("length", [12, 24, 160])
def test_the_spread_of_means(rho: float, length: int) -> None:
    values = series(rho, 400, length)
    expected = np.median([chance_spread(values[at : at + 4]) for at in range(0, 400, 4)])
    assert 0.8 < expected / np.std(values.mean(axis=1)) < 2


def test_independent_values_are_not_trusted_to_be_so() -> None:
    values = series(0.0, 400, 24)
    assert chance_spread(values) > 2 * np.std(values.mean(axis=1))


def test_a_single_outlier_decides_nothing() -> None:
    values = series(0.0, 4, 24)
    outlier = values.copy()
    outlier[0, 7] = 1e6
    assert chance_spread(outlier) < 1.5 * chance_spread(values)


def test_constant_values_do_not_spread() -> None:
    assert chance_spread(np.ones((2, 8))) == 0
    assert autocorrelation(np.ones((2, 8))) == 0
