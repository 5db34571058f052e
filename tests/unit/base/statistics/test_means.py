"""Bootstrap intervals of means and of their ratio."""

import numpy as np
import pytest

from perfkit.base.statistics import bootstrap
from perfkit.base.statistics.bootstrap import DRAWS, generator, mean_interval, means, medians, ratio_interval


def test_means_of_resamples_scatter_by_the_standard_error() -> None:
    values = np.random.default_rng(0).gamma(4, 1, 30)
    drawn = means(values, generator())
    assert drawn.shape == (DRAWS,)
    assert drawn.mean() == pytest.approx(values.mean(), rel=0.01)
    assert drawn.std() == pytest.approx(values.std() / np.sqrt(30), rel=0.05)


def test_many_values_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "_MOST_DRAWN", 64)
    drawn = means([1.0, 2.0, 3.0, 10.0] * 10, generator())
    assert drawn.shape == (DRAWS,)
    assert mean_interval([1.0, 2.0, 3.0, 10.0] * 10) == pytest.approx((3.0, 5.1), abs=0.3)


def test_the_interval_of_a_mean_has_nearly_its_nominal_coverage() -> None:
    draw = np.random.default_rng(5)
    found = [mean_interval(draw.normal(100, 5, 50)) for _ in range(200)]
    assert sum(low <= 100 <= high for low, high in found) >= 180  # 190 are expected


def test_a_ratio_of_means_sees_what_a_ratio_of_medians_does_not() -> None:
    before, after = [100.0] * 30, [100.0] * 24 + [300.0] * 6
    assert ratio_interval(before, after, medians) == (1, 1)
    low, high = ratio_interval(before, after, means) or (0, 0)
    assert 1 < low < 1.4 < high
    assert ratio_interval([0.0] * 5, after, means) is None
