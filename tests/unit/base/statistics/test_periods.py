import numpy as np
import pytest

from perfkit.base.statistics.series import find_periods


def _events(count: int, *places: int | range) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    events = np.zeros(count, bool)
    for place in places:
        events[place] = True
    return events


def test_a_period_is_found_among_other_events() -> None:
    (found,) = find_periods(_events(10_000, range(500, 10_000, 500), 1_234, 4_321, 8_888))
    assert found.period == 500
    assert found.places.tolist() == list(range(500, 10_000, 500))
    assert found.expected == 19


def test_two_periods_at_once() -> None:
    found = find_periods(_events(10_000, range(70, 10_000, 100), range(300, 10_000, 730)))
    assert sorted(one.period for one in found) == [100, 730]


def test_missing_events_are_counted() -> None:
    events = _events(10_000, range(250, 10_000, 250))
    events[[2_500, 5_250]] = False
    (found,) = find_periods(events)
    assert (found.period, len(found.places), found.expected) == (250, 37, 39)


def test_a_period_that_begins_and_ends_within_the_series() -> None:
    (found,) = find_periods(_events(10_000, range(3_000, 6_001, 200)))
    assert (found.period, int(found.places[0]), int(found.places[-1])) == (200, 3_000, 6_000)


@pytest.mark.parametrize("share", [0.0005, 0.005, 0.05])
def test_events_at_random_have_no_period(share: float) -> None:
    for seed in range(20):
        assert find_periods(np.random.default_rng(seed).random(5_000) < share) == []


def test_few_events_and_alternation_have_no_period() -> None:
    assert find_periods(_events(1_000)) == []
    assert find_periods(_events(1_000, 100, 200, 300)) == []
    assert find_periods(_events(1_000, range(0, 1_000, 2))) == []


@pytest.mark.parametrize("period", [4, 5, 7])
def test_short_periods_are_found_beside_other_events(period: int) -> None:
    events = _events(2_000, range(0, 2_000, period)) | (np.random.default_rng(0).random(2_000) < 0.05)
    (found,) = find_periods(events)
    assert (found.period, len(found.places)) == (period, found.expected)


def test_bursts_have_no_period() -> None:
    for seed in range(20):
        random = np.random.default_rng(seed)
        events = np.zeros(5_000, bool)
        for begin in random.integers(0, 4_900, size=10):
            length = int(random.integers(10, 60))
            events[begin : begin + length] |= random.random(length) < random.uniform(0.3, 0.9)
        assert find_periods(events) == []


def test_a_period_is_found_among_bursts_of_other_events() -> None:
    """As on a host that others use: the pairs within bursts are more than those of the period, at all short lags."""
    for seed in range(5):
        random = np.random.default_rng(seed)
        events = _events(10_000, range(499, 10_000, 500))
        for place in random.integers(0, 9_900, 12):
            events[place + random.integers(0, 100, 60)] = True
        assert 500 in [one.period for one in find_periods(events)]


def test_a_short_period_is_found_among_bursts_rather_than_its_multiple() -> None:
    """Bursts make so many pairs at the lags around a short period that it stands out less than its multiples."""
    for seed in range(3):
        events = _events(10_000, range(3, 10_000, 10))
        for place in np.random.default_rng(seed).integers(0, 9_992, 100):
            events[place : place + 8] = True
        assert 10 in [one.period for one in find_periods(events)]
