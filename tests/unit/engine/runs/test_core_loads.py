"""How busy other processes kept the cores of a run's ranks."""

import pytest

from perfkit.engine.runs.trust import core_loads, is_busy
from perfkit.records.run import CoreLoad
from perfkit.records.trace_header import CoreUse

S = 10**9


def use(busy: float, own: float, *, cores: str = "m: 0-1", count: int = 2, window_ns: int = S) -> CoreUse:
    """The use of some cores: how many were busy, and how many the rank itself kept busy."""
    return CoreUse(
        cores=cores, count=count, window_ns=window_ns, busy_ns=round(busy * window_ns), own_ns=round(own * window_ns)
    )


def taken(load: CoreLoad) -> tuple[float, float, float, float]:
    return load.own, load.others, load.idle, load.taken_share


def test_what_another_rank_of_the_run_uses_on_the_same_cores_is_not_of_others() -> None:
    (load,) = core_loads([(0, use(1.9, 0.9)), (1, use(1.9, 0.9))], 2)
    assert load.ranks == [0, 1]
    assert taken(load) == pytest.approx((1.8, 0.1, 0.1, 0.0), abs=1e-9)


def test_a_rank_on_other_cores_is_not_subtracted() -> None:
    quiet, busy = core_loads([(0, use(1, 1, cores="m: 0", count=1)), (1, use(1, 0.2, cores="m: 1", count=1))], 2)
    assert (quiet.ranks, quiet.taken_share) == ([0], 0)
    assert busy.ranks == [1]
    assert busy.taken_share == pytest.approx(0.8)
    assert is_busy([quiet, busy])
    assert not is_busy([quiet])


def test_others_take_nothing_where_as_many_cores_stay_idle() -> None:
    (load,) = core_loads([(0, use(28, 8, cores="m: 0-63", count=64))], 1)
    assert taken(load) == (8, 20, 36, 0)


def test_others_take_no_more_cores_than_there_are() -> None:
    (load,) = core_loads([(0, use(2.3, 0.2))], 1)
    assert taken(load) == pytest.approx((0.2, 1.8, 0, 0.9))


def test_cycles_of_a_rank_count_by_their_length() -> None:
    (load,) = core_loads([(0, use(2, 0, window_ns=3 * S)), (0, use(0, 0, window_ns=S))], 1)
    assert load.others == 1.5


@pytest.mark.parametrize(
    "uses",
    [
        [(0, use(2, 1))],
        [(0, use(2, 1)), (1, None)],
        [(0, use(2, 1)), (1, use(2, 1, window_ns=0))],
        [(0, use(2, 1)), (1, use(2, 1, count=0))],
    ],
)
def test_nothing_is_known_where_a_rank_has_not_recorded_its_use(uses: list[tuple[int, CoreUse | None]]) -> None:
    assert core_loads(uses, 2) == []
