from collections.abc import Sequence

import pytest

from perfkit.report.charts.plan import size_ticks, time_ticks

MS, S = 1e6, 1e9


@pytest.mark.parametrize(
    ("times", "texts"),
    [
        ((20 * MS, 900 * MS), ["20 ms", "50 ms", "100 ms", "200 ms", "500 ms", "1 s"]),
        ((31 * S, 500 * S), ["30 s", "1 min", "2 min", "5 min", "10 min"]),
        ((1800 * S, 36_000 * S), ["30 min", "1 h", "2 h", "5 h", "10 h"]),
        ((340 * MS, 600 * MS), ["300 ms", "400 ms", "500 ms", "600 ms", "700 ms"]),
        ((344 * MS, 345 * MS), ["300 ms", "350 ms", "400 ms"]),
        ((1 * MS, 31 * S), ["1 ms", "10 ms", "100 ms", "1 s", "10 s"]),
    ],
)
def test_times_have_the_unit_that_suits_them(times: Sequence[float], texts: list[str]) -> None:
    assert time_ticks(times)["ticktext"] == texts


def test_every_tick_is_within_the_axis() -> None:
    for exponent in range(16):
        for ratio in (1, 1.01, 1.5, 7, 1000, 1e9):
            low = 3.3 * 10**exponent
            found = time_ticks((low, low * ratio))
            assert 2 <= len(found["tickvals"]) <= 20
            assert len({*found["ticktext"]}) == len(found["ticktext"])
            assert all(low / 1.3 * 0.999 <= value <= low * ratio * 1.3 * 1.001 for value in found["tickvals"])


def test_sizes_go_from_megabytes_to_terabytes() -> None:
    assert size_ticks((400e6, 3e9))["ticktext"] == ["500 MB", "1 GB", "2 GB"]
    assert size_ticks((90e9, 2e12))["ticktext"] == ["100 GB", "200 GB", "500 GB", "1 TB", "2 TB"]
