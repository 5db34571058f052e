"""What is said of runs whose truth is known: all of it, and nothing else."""

from collections.abc import Callable

import numpy as np
import pytest
from msgspec import structs
from numpy.typing import NDArray

from perfkit.subjects.monitor.summarize import monitor_findings, summarize
from perfkit.subjects.monitor.table import align, rank_steps
from tests.support.monitor.made_runs import BEGIN_NS, eventful_times, own_times, records
from tests.unit.subjects.monitor.made_tables import FACTS, is_quiet, summary_of

Floats = NDArray[np.float64]


@pytest.mark.parametrize("ranks", [2, 8])
def test_everything_that_happened_is_named_and_nothing_else(ranks: int) -> None:
    found = summary_of(eventful_times(ranks))
    (change,) = found.changes
    assert (change.step, change.exact, change.ranks, change.until_step) == (6_000, True, [ranks - 1], None)
    assert change.after_ns / change.before_ns == pytest.approx(1.17, abs=0.04)
    (stall,) = found.stalls
    assert (stall.period, stall.first_step, stall.last_step, stall.count) == (500, 500, 9_500, 19)
    assert stall.extra_ns == pytest.approx(300e6, rel=0.02)
    assert stall.rank is None
    assert [(slow.first_step, slow.last_step, slow.rank) for slow in found.slow_steps] == [
        (step, step, 0) for step in (1_234, 4_321, 8_888)
    ]
    (late,) = found.late_ranks
    assert (late.rank, late.first_step, late.last_step) == (ranks - 1, 6_000, None)
    assert late.lag_ns == pytest.approx(10e6, rel=0.1)
    assert found.lateness_known
    assert [fact.code for fact in monitor_findings(found)] == [
        "step_time_changed",
        "periodic_stalls",
        "slow_steps",
        "rank_late_over_run",
    ]


def test_a_single_rank_is_compared_with_itself_only() -> None:
    found = summary_of(eventful_times(1))
    assert [(change.step, change.exact, change.ranks) for change in found.changes] == [(6_000, False, [])]
    assert [(stall.period, stall.first_step) for stall in found.stalls] == [(500, 500)]
    assert [slow.first_step for slow in found.slow_steps] == [1_234, 4_321, 8_888]
    assert not found.late_ranks
    assert not found.lateness_known


NOISES: dict[str, Callable[[np.random.Generator, tuple[int, int]], Floats]] = {
    "normal": lambda draw, shape: 50e6 * (1 + 0.05 * draw.standard_normal(shape)),
    "log-normal": lambda draw, shape: 50e6 * np.exp(0.2 * draw.standard_normal(shape)),
    "exponential": lambda draw, shape: 50e6 + 20e6 * draw.exponential(size=shape),
    "gamma": lambda draw, shape: 30e6 + 10e6 * draw.gamma(2, size=shape),
}


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("shape", [(1, 1_000), (2, 60), (2, 300), (8, 60), (8, 300)])
def test_noise_is_silent(name: str, shape: tuple[int, int]) -> None:
    loud = {}
    for seed in range(20):
        found = summary_of(NOISES[name](np.random.default_rng(seed), shape))
        if not is_quiet(found):
            loud[seed] = list(monitor_findings(found))
    # Each of these 400 runs may blame somebody with a probability of 0.1 %.
    assert len(loud) <= 1, loud


def _slow_start(own: Floats) -> None:
    own[:, 0] *= 30


def _compiling_start(own: Floats) -> None:
    own[:, [0, 1, 5]] *= 20


def _long_warmup(own: Floats) -> None:
    own *= 1 + 2 * np.exp(-np.arange(own.shape[1]) * 40 / own.shape[1])


def _alternating(own: Floats) -> None:
    own[:, ::2] *= 2


def _every_fourth(own: Floats) -> None:
    own[:, 3::4] *= 1.4


def _mixed_lengths(own: Floats) -> None:
    own *= np.random.default_rng(3).choice([1, 1.5, 2.5], own.shape[1])


@pytest.mark.parametrize(
    "change", [_slow_start, _compiling_start, _long_warmup, _alternating, _every_fourth, _mixed_lengths]
)
@pytest.mark.parametrize("steps", [200, 4_000])
def test_what_is_usual_is_silent(change: Callable[[Floats], None], steps: int) -> None:
    own = own_times(4, steps)
    change(own)
    found = summary_of(own)
    assert is_quiet(found), list(monitor_findings(found))


def test_a_single_outlier_is_a_slow_step_and_no_more() -> None:
    own = own_times(4, 2_000)
    own[2, 777] *= 8
    found = summary_of(own)
    assert [(slow.first_step, slow.rank) for slow in found.slow_steps] == [(777, 2)]
    assert is_quiet(structs.replace(found, slow_steps=[]))


def test_steps_in_a_row_are_one_slow_time() -> None:
    own = own_times(2, 500)
    own[:, 200:203] *= 4
    (slow,) = summary_of(own).slow_steps
    assert (slow.first_step, slow.last_step, slow.rank) == (200, 202, None)


def test_a_leak_is_a_gradual_change() -> None:
    own = own_times(2, 3_000) * np.linspace(1, 1.4, 3_000)
    (change,) = summary_of(own).changes
    assert change.until_step == 2_999
    assert change.after_ns / change.before_ns == pytest.approx(1.37, abs=0.05)


def test_a_stall_of_one_rank_names_it() -> None:
    own = own_times(4, 2_000)
    own[1, 99::100] += 100e6
    found = summary_of(own)
    assert [(stall.period, stall.first_step, stall.rank) for stall in found.stalls] == [(100, 99, 1)]
    assert not found.slow_steps


@pytest.mark.parametrize("period", [4, 5, 6, 7, 8])
def test_a_stall_that_recurs_after_a_few_steps_is_found(period: int) -> None:
    own = own_times(2, 1_000)
    own[:, ::period] += 300e6
    (stall,) = summary_of(own).stalls
    assert (stall.period, stall.count) == (period, stall.expected)
    assert stall.extra_ns == pytest.approx(300e6, rel=0.02)


@pytest.mark.parametrize("period", [3, 4, 6, 7])
def test_long_steps_are_counted_even_if_they_recur(period: int) -> None:
    own = own_times(1, 1_000)
    own[:, ::period] += 300e6
    found = summary_of(own)
    assert found.long_step_count == pytest.approx(found.single_steps / period, abs=1)
    assert found.long_step_times == pytest.approx(6.8, abs=0.2)


def test_a_stall_is_in_the_part_that_grows() -> None:
    own = own_times(2, 2_000)
    data = np.full(own.shape, 1e6)
    own[:, 99::100] += 100e6
    data[:, 99::100] += 100e6
    assert [stall.part for stall in summary_of(own, data_ns=data).stalls] == ["data_loading"]
    pauses = np.full(own.shape, 0.0)
    pauses[:, 99::100] += 100e6
    paused = summary_of(own_times(2, 2_000), pause_ns=pauses)
    assert [(stall.period, stall.part) for stall in paused.stalls] == [(100, "pause")]


def test_slower_collectives_are_no_ranks_fault() -> None:
    own = own_times(4, 2_000)
    network = np.zeros(own.shape)
    network[:, 1_000:] = 20e6
    wall = own.max(axis=0) + 2e6 + network
    found = summary_of(own, step_ns=wall, longest_ns=wall, collective_ns=wall - own)
    assert [(change.step, change.ranks, change.part) for change in found.changes] == [(1_000, [], "collectives")]
    assert not found.late_ranks


def test_a_rank_that_is_late_for_a_while() -> None:
    own = own_times(4, 4_000)
    own[3, 1_000:2_000] *= 1.3
    (late,) = summary_of(own).late_ranks
    assert (late.rank, late.first_step, late.last_step) == (3, 1_000, 1_999)
    assert (late.late_steps, late.steps) == (1_000, 1_000)


def test_late_steps_are_counted_where_the_rank_is_called_late() -> None:
    own = own_times(2, 1_000, noise=0.03)
    own[1, 300:600] *= 1.3
    (late,) = summary_of(own).late_ranks
    assert (late.first_step, late.last_step, late.steps) == (300, 599, 300)
    assert late.late_steps == pytest.approx(300, abs=3)
    assert late.lag_ns == pytest.approx(15e6, rel=0.05)


def test_a_rank_that_is_late_now_and_then() -> None:
    own = own_times(8, 2_000)
    when = np.random.default_rng(5).random(2_000) < 0.1
    when[:10] = False
    own[5, when] *= 1.6
    (late,) = summary_of(own).late_ranks
    assert (late.rank, late.late_steps, late.first_step) == (5, int(when.sum()), None)


def test_a_rank_whose_log_ends_early_is_judged_by_the_steps_it_has() -> None:
    own = own_times(4, 1_000)
    when = np.arange(1_000) % 9 == 5
    when[:10] = False
    for is_late in (False, True):
        own[2, when] *= 1.6 if is_late else 1.0
        logs = {rank: rank_steps(records(own, rank)[: 400 if rank == 2 else None], "cpu") for rank in range(4)}
        table = align(logs)
        assert table is not None
        found = summarize(table, FACTS)
        assert [(end.rank, end.last_step) for end in found.early_ends] == [(2, 399)]
        expected = [(2, int(when[:400].sum()), 400)] if is_late else []
        assert [(late.rank, late.late_steps, late.steps) for late in found.late_ranks] == expected


def test_without_time_in_collectives_no_rank_is_accused() -> None:
    found = summary_of(eventful_times(2), collective_ns=np.array(-1.0))
    assert [(change.step, change.ranks) for change in found.changes] == [(6_000, [])]
    assert not found.late_ranks
    assert not found.lateness_known
    assert {slow.rank for slow in found.slow_steps} == {None}


def test_what_the_host_of_a_device_waits_accuses_no_rank() -> None:
    own = eventful_times(2)
    table = align({rank: rank_steps(records(own, rank), "cuda:0") for rank in range(2)})
    assert table is not None
    found = summarize(table, FACTS)
    assert not found.lateness_known
    assert not found.late_ranks
    assert found.collective_share is None
    assert [change.ranks for change in found.changes] == [[]]


def test_steps_under_the_profiler_are_left_out() -> None:
    own = own_times(2, 400)
    kinds = np.ones(400)
    kinds[0], kinds[100:103] = 0, 3
    own[:, [0, 100, 101, 102]] *= 6
    found = summary_of(own, kind=kinds)
    assert is_quiet(found)
    assert found.left_out_steps == 4


def test_few_steps_are_not_compared() -> None:
    found = summary_of(own_times(2, 10))
    assert is_quiet(found)
    assert not found.compared
    assert found.steps == 10


def test_shares_count_each_step_of_a_rolled_up_record() -> None:
    counts = np.repeat([3.0, 1.0], 40)
    first = np.concatenate([[0], counts.cumsum()[:-1]])
    begin_ns = BEGIN_NS + first * 52e6
    data_ns = 52e6 * np.repeat([0.1, 0.4], 40)
    found = summary_of(np.full((2, 80), 50e6), steps=counts, step=first, begin_ns=begin_ns, data_ns=data_ns)
    assert (found.steps, found.rolled_up_steps) == (160, 120)
    assert found.data_share == pytest.approx((120 * 0.1 + 40 * 0.4) / 160, rel=1e-6)
    assert found.collective_share == pytest.approx(2 / 52, rel=1e-6)


def test_the_curve_has_the_step_time_in_blocks_of_steps() -> None:
    own = np.tile([40e6, 60e6], (2, 400))
    own[0, 101] = 400e6
    curve = summary_of(own).curve
    assert curve.steps == list(range(0, 800, 2))
    assert (curve.low_ns[0], curve.median_ns[0], curve.high_ns[0], curve.longest_ns[0]) == (42e6, 62e6, 62e6, 62e6)
    assert {step: longest for step, longest in zip(curve.steps, curve.longest_ns, strict=True) if longest > 62e6} == {
        100: 402e6
    }
