import numpy as np
import pytest

from perfkit.base.statistics.series import find_levels


def _noise(count: int, seed: int = 0) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return 50 + np.random.default_rng(seed).standard_normal(count)


@pytest.mark.parametrize("place", [40, 60, 1_000, 6_000, 9_500])
def test_a_change_is_found_at_its_very_place(place: int) -> None:
    count = 10_000 if place >= 1_000 else 100
    values = _noise(count)
    values[place:] += 10
    found = find_levels(values, 2.5)
    assert found.starts == [0, place]
    assert found.medians == pytest.approx([50, 60], abs=1)
    assert found.exact == [True, True]
    assert not found.gradual


def test_a_change_within_its_noise_is_not_called_exact() -> None:
    values = _noise(10_000) + 4 * np.random.default_rng(1).standard_normal(10_000)
    values[4_000:] += 5
    found = find_levels(values, 2.5)
    assert len(found.starts) == 2
    assert abs(found.starts[1] - 4_000) < 50
    assert found.exact == [True, False]


def test_a_time_between_two_changes_is_a_level_of_its_own() -> None:
    values = _noise(10_000)
    values[3_000:5_000] += 10
    assert find_levels(values, 2.5).starts == [0, 3_000, 5_000]


def test_a_line_is_gradual() -> None:
    values = _noise(5_000) + np.linspace(0, 20, 5_000)
    found = find_levels(values, 2.5)
    assert found.gradual
    assert found.medians[0] < found.medians[-1]


@pytest.mark.parametrize("outlier", [499, 500])
def test_beside_an_outlier_no_place_is_exact(outlier: int) -> None:
    values = _noise(1_000)
    values[500:] += 10
    values[outlier] = 300
    found = find_levels(values, 2.5)
    assert found.starts == [0, outlier]
    assert found.exact == [True, False]


@pytest.mark.parametrize("seed", range(10))
def test_what_wanders_has_no_levels(seed: int) -> None:
    draw = np.random.default_rng(seed)
    values = _noise(3_000, seed)
    drift = np.zeros(3_000)
    for at in range(1, 3_000):
        drift[at] = 0.97 * drift[at - 1] + 0.3 * draw.standard_normal()
    assert find_levels(values + drift, 2.5).starts == [0]
