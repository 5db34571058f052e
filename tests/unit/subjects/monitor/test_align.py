import numpy as np
import pytest

from perfkit.engine.ranks.lateness import excess
from perfkit.storage.step_log.reader import roll_up
from perfkit.subjects.monitor.summarize import summarize
from perfkit.subjects.monitor.table import align, rank_steps
from tests.support.monitor.made_runs import eventful_times, own_times, records
from tests.unit.subjects.monitor.made_tables import FACTS


@pytest.mark.parametrize("ranks", range(2, 9))
def test_excess_is_over_the_median_of_the_others(ranks: int) -> None:
    own = np.random.default_rng(ranks).integers(0, 6, (ranks, 200)).astype(np.float64)
    for row in range(ranks):
        expected = own[row] - np.median(np.delete(own, row, axis=0), axis=0)
        assert excess(own)[row] == pytest.approx(expected)


def test_ranks_that_begin_and_end_at_other_steps() -> None:
    own = own_times(2, 100)
    first, second = records(own, 0)[:90], records(own, 1)[5:]
    table = align({0: rank_steps(first, "cpu"), 1: rank_steps(second, "cpu")})
    assert table is not None
    assert table.first.tolist() == list(range(100))
    assert table.counts.tolist() == [1] * 100
    assert np.isnan(table.columns["step_ns"][1, :5]).all()
    assert np.isnan(table.columns["step_ns"][0, 90:]).all()
    assert not np.isnan(table.columns["step_ns"][:, 5:90]).any()


def test_logs_that_were_rolled_up_differently_meet_at_common_steps() -> None:
    own = own_times(2, 64)
    coarse, fine = roll_up(roll_up(records(own, 0))), records(own, 1)
    table = align({0: rank_steps(coarse, "cpu"), 1: rank_steps(fine, "cpu")})
    assert table is not None
    assert table.first.tolist() == list(range(0, 64, 4))
    assert set(table.counts.tolist()) == {4}
    wall = own.max(axis=0) + 2e6
    assert table.columns["step_ns"][1] == pytest.approx(wall.reshape(-1, 4).mean(axis=1), rel=1e-6)
    assert table.columns["step_ns"][0] == pytest.approx(table.columns["step_ns"][1], rel=1e-6)
    assert table.columns["longest_ns"][1] == pytest.approx(wall.reshape(-1, 4).max(axis=1), rel=1e-6)
    assert table.columns["longest_offset"][1].tolist() == wall.reshape(-1, 4).argmax(axis=1).tolist()
    assert table.columns["longest_offset"][0].tolist() == table.columns["longest_offset"][1].tolist()


def test_what_happened_in_rolled_up_steps_keeps_its_number() -> None:
    own = eventful_times(2)
    logs = {}
    for rank in range(2):
        made = records(own, rank)
        logs[rank] = rank_steps(np.concatenate([roll_up(made[:7_000]), made[7_000:]]), "cpu")
    table = align(logs)
    assert table is not None
    found = summarize(table, FACTS)
    assert found.rolled_up_steps == 7_000
    assert [slow.first_step for slow in found.slow_steps] == [1_234, 4_321, 8_888]
    assert [(stall.period, stall.first_step, stall.count) for stall in found.stalls] == [(500, 500, 19)]
    assert [(change.step, change.ranks) for change in found.changes] == [(6_000, [1])]


@pytest.mark.parametrize(("period", "times"), [(50, 3), (50, 6), (30, 4)])
def test_no_period_is_invented_among_rolled_up_steps(period: int, times: int) -> None:
    own = own_times(1, 8_000)
    own[:, ::period] *= 4
    made = records(own, 0)
    for _ in range(times):
        made = roll_up(made)
    table = align({0: rank_steps(made, "cpu")})
    assert table is not None
    found = summarize(table, FACTS)
    assert {stall.period for stall in found.stalls} <= {period}
    assert found.slow_step_count == 0
    assert found.single_steps == 0


def test_a_period_is_found_in_the_steps_that_are_not_rolled_up() -> None:
    own = own_times(1, 8_000)
    own[:, ::50] *= 4
    made = records(own, 0)
    old = made[:6_400]
    for _ in range(6):
        old = roll_up(old)
    table = align({0: rank_steps(np.concatenate([old, made[6_400:]]), "cpu")})
    assert table is not None
    found = summarize(table, FACTS)
    assert [(stall.period, stall.first_step, stall.count) for stall in found.stalls] == [(50, 6_400, 32)]
    assert found.slow_step_count == 0


def test_of_a_very_long_run_the_newest_steps_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.subjects.monitor.stalls._MOST_SEARCHED", 1_000)
    own = own_times(1, 3_000)
    own[:, ::50] *= 1.5
    table = align({0: rank_steps(records(own, 0), "cpu")})
    assert table is not None
    found = summarize(table, FACTS)
    assert [(stall.period, stall.first_step, stall.last_step) for stall in found.stalls] == [(50, 2_000, 2_950)]


def test_a_run_that_began_anew_counts_its_last_steps() -> None:
    own = own_times(1, 50)
    again = np.concatenate([records(own, 0)[:40], records(own, 0)[30:]])
    again["step_ns"][35] = 1
    table = align({0: rank_steps(again, "cpu")})
    assert table is not None
    assert table.first.tolist() == list(range(50))
    assert table.columns["step_ns"].min() > 1


def test_numbers_in_a_log_do_not_decide_how_much_memory_is_taken() -> None:
    made = records(own_times(1, 64), 0)
    made["steps"] = 1 << 31
    made["step"] = made["longest_step"] = np.arange(64, dtype=np.int64) << 31
    made["step_ns"][::8] = made["longest_ns"][::8] = 900_000_000
    table = align({0: rank_steps(made, "cpu")})
    assert table is not None
    found = summarize(table, FACTS)
    assert (found.steps, found.stalls) == (64 << 31, [])


def test_many_cells_are_joined() -> None:
    own = own_times(4, 1_000)
    table = align({rank: rank_steps(records(own, rank), "cpu") for rank in range(4)}, most_cells=500)
    assert table is not None
    assert table.columns["step_ns"].size <= 500
    assert table.counts.sum() == 1_000


def test_nothing_is_no_table() -> None:
    assert align({}) is None
    assert align({0: rank_steps(records(own_times(1, 5), 0)[:0], "cpu")}) is None
