"""Predictions of simulated runs are what simulating the changed run gives: where the assumptions hold, exactly."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from perfkit.engine.whatif.predict import replay_unchanged
from perfkit.errors import UsageError
from perfkit.pipeline.whatif import predict as predict_of
from perfkit.pipeline.whatif import predict_changes
from perfkit.records.per_run.whatif import Prediction
from perfkit.records.run import RunReport
from tests.support.reports.report_builders import make_run
from tests.support.traces.simulated_training import Training, simulate
from tests.support.traces.trace_builder import TraceBuilder

_RUN: RunReport = replace(make_run(), cross_rank=None)
"""A run without fitted latencies."""
BASE = Training(load=(20, 24), forward=(30, 50), backward=((40, 30, 20), (44, 36, 28)), transfer=(25, 35, 45), log=10)


def predict(run: Training, *changes: str) -> Prediction:
    graph = simulate(run)
    before = replay_unchanged([graph])
    assert np.array_equal(before.measured_ns, before.steps_ns)
    return predict_changes([graph], _RUN, before, changes)


def median_step(run: Training) -> float:
    return float(np.median(replay_unchanged([simulate(run)]).measured_ns))


def check(before: Training, after: Training, *changes: str) -> None:
    one = predict(before, *changes)
    assert one.step_ns == median_step(after)
    assert one.range_ns[0] <= one.step_ns <= one.range_ns[1]


def halved(values: Sequence[int]) -> list[int]:
    return [value // 2 for value in values]


def made(seed: int) -> Training:
    """Return a run of two to four ranks and one to three buckets, of random times."""
    draw = random.Random(seed)  # noqa: S311
    ranks, buckets = draw.randint(2, 4), draw.randint(1, 3)

    def times(count: int) -> list[int]:
        return [2 * draw.randint(1, 50) for _ in range(count)]

    return Training(
        load=times(ranks),
        forward=times(ranks),
        backward=[times(buckets) for _ in range(ranks)],
        transfer=times(buckets),
        optimizer=times(1)[0],
        log=draw.choice([0, 6]),
        steps=3,
    )


runs = pytest.mark.parametrize("run", [made(seed) for seed in range(12)])


@runs
def test_times_that_change_are_predicted_exactly(run: Training) -> None:
    check(run, run._replace(load=halved(run.load)), "input=0.5x")
    check(run, run._replace(load=[0] * len(run.load)), "input=0")
    check(run, run._replace(backward=[halved(row) for row in run.backward]), "compute:backward=0.5x")
    check(run, run._replace(forward=[3 * ns for ns in run.forward]), "compute:for*=3x")
    check(run, run._replace(transfer=halved(run.transfer)), "collective[dp]=0.5x")
    check(run, run._replace(transfer=halved(run.transfer)), "bandwidth[all_reduce]=2x")
    both = run._replace(load=halved(run.load), forward=[2 * ns for ns in run.forward])
    check(run, both, "compute:forward=2x", "input=0.5x")


@runs
def test_a_rank_becomes_as_the_others(run: Training) -> None:
    def others(values: Sequence[int]) -> int:
        return int(np.rint(np.median(values[1:])))

    alike = run._replace(
        load=[others(run.load), *run.load[1:]],
        forward=[others(run.forward), *run.forward[1:]],
        backward=[[others(bucket) for bucket in zip(*run.backward, strict=True)], *run.backward[1:]],
    )
    assert predict(run, "rank0=healthy").step_ns == pytest.approx(median_step(alike), abs=1)


def test_of_what_runs_several_times_the_run_that_is_longer_gets_shorter() -> None:
    late = BASE._replace(load=(20, 20), forward=(50, 50), backward=((60, 10), (10, 10)), transfer=(40, 40))
    check(late, late._replace(backward=((10, 10), (10, 10))), "rank0=healthy")


def test_ranks_that_become_healthy_together_are_no_measure_for_each_other() -> None:
    late = BASE._replace(load=(5, 5, 5), forward=(90, 90, 40), backward=[(20, 20)] * 3, transfer=(10, 10))
    check(late, late._replace(forward=(40, 40, 40)), "rank0=healthy", "rank1=healthy")
    # Of all ranks, the one in the middle of all own times.
    check(late, late._replace(forward=(90, 90, 90)), "rank0=healthy", "rank1=healthy", "rank2=healthy")


def taking_turns(rank: int) -> TraceBuilder:
    """One of two ranks of which one idles for 400 us before it computes, in turns."""
    builder = TraceBuilder(rank, 2, backend="gloo", host_name="one")
    for step in range(8):
        begin = 1000 * step
        joins = begin + (500 if step % 2 == rank else 100)
        builder.step(step, begin, 1000).op("aten::mm", joins - 100, 100).op("c10d::allreduce_", joins, 4)
        builder.gloo("all_reduce", joins + 5, begin + 540 - joins - 5).op("aten::add", begin + 541, 459)
    return builder


def test_no_rank_gets_the_delay_of_another_that_is_late_in_turn_with_it(tmp_path: Path) -> None:
    for rank in range(2):
        taking_turns(rank).write(tmp_path / f"rank{rank}.json")
    one = predict_of(tmp_path, ["rank0=healthy", "rank1=healthy"]).prediction
    assert one is not None
    assert one.saving_ns == pytest.approx(400_000, rel=0.02)


def test_two_healthy_ranks_of_three_are_as_the_third() -> None:
    run = Training(load=(5, 5, 5), forward=(30, 430, 430), backward=((40,), (40,), (40,)), transfer=(25,))
    check(run, run._replace(forward=(30, 30, 30)), "rank1=healthy", "rank2=healthy")


@runs
def test_a_rank_that_gets_slower_as_a_whole(run: Training) -> None:
    slower = run._replace(
        load=[2 * run.load[0], *run.load[1:]],
        forward=[2 * run.forward[0], *run.forward[1:]],
        backward=[[2 * ns for ns in run.backward[0]], *run.backward[1:]],
    )
    one = predict(slower, "rank0=0.5x")
    # The optimizer and the log of rank 0 are halved as well, and it may be the last of all.
    assert median_step(run) - run.optimizer - run.log <= one.step_ns <= median_step(run)


@runs
def test_without_overlap_collectives_follow_each_other_after_backward(run: Training) -> None:
    after = run._replace(overlap=False)
    try:
        one = predict(run, "overlap=removed")
    except UsageError:
        assert len(run.transfer) == 1  # the only bucket is full when backward ends
        assert median_step(after) == median_step(run)
        return
    assert one.step_ns == median_step(after)


@pytest.mark.parametrize("micro_steps", [1, 2, 4])
@runs
def test_micro_steps_repeat_all_but_the_collectives_and_the_optimizer(run: Training, micro_steps: int) -> None:
    run = run._replace(log=0)
    check(run, run._replace(micro_steps=micro_steps), f"accumulate={micro_steps}")


@runs
def test_micro_steps_that_there_are_become_fewer_or_more(run: Training) -> None:
    run = run._replace(log=0)
    accumulated = replace(_RUN, config={"accumulate": 2})
    graph = simulate(run._replace(micro_steps=2))
    for micro_steps in (1, 2, 6):
        one = predict_changes([graph], accumulated, replay_unchanged([graph]), [f"accumulate={micro_steps}"])
        assert one.step_ns == median_step(run._replace(micro_steps=micro_steps))


def test_buckets_are_merged_and_split() -> None:
    sized = BASE._replace(bytes=(1000, 1000, 1000), backward=((60, 60, 60),) * 2, transfer=(40, 40, 40))
    merged = sized._replace(backward=((120, 60),) * 2, transfer=(80, 40), bytes=(2000, 1000))
    check(sized, merged, "bucket_cap=2kB")
    whole = sized._replace(backward=((180,),) * 2, transfer=(120,), bytes=(3000,))
    check(sized, whole, "bucket_cap=1MB")
    # Of the last bucket one half is transferred while backward computes the other; the first must be known.
    halves = sized._replace(
        backward=((60, 30, 30, 30, 30),) * 2, transfer=(40, 20, 20, 20, 20), bytes=(1000, *[500] * 4)
    )
    check(sized, halves, "bucket_cap=500B")


def test_buckets_that_were_transferred_at_once_take_no_longer_for_being_merged() -> None:
    """From 60 to 160, 120 to 220 and 180 to 280: together 220, and not 300."""
    sized = BASE._replace(bytes=(1000,) * 3, backward=((60, 60, 60),) * 2, transfer=(100,) * 3, at_once=True)
    check(sized, sized._replace(backward=((180,),) * 2, transfer=(220,), bytes=(3000,)), "bucket_cap=1MB")


def test_fewer_ranks_wait_for_fewer() -> None:
    slow_third = BASE._replace(
        load=(*BASE.load, 20), forward=(*BASE.forward, 400), backward=(*BASE.backward, (40, 30, 20))
    )
    graph = simulate(slow_third)
    run = replace(_RUN, world_size=3)
    one = predict_changes([graph], run, replay_unchanged([graph]), ["ranks=2"])
    factor = (1 / 2) / (2 / 3)
    two = BASE._replace(transfer=[round(ns * factor) for ns in BASE.transfer])
    assert one.step_ns == pytest.approx(median_step(two), abs=3)
    alone = predict_changes([graph], run, replay_unchanged([graph]), ["ranks=1"])
    assert alone.step_ns == 20 + 30 + 90 + 5 + 10
    more = predict_changes([graph], run, replay_unchanged([graph]), ["ranks=1000"])
    assert more.step_ns > median_step(slow_third)


def test_idle_time_by_cause_and_by_name() -> None:
    check(BASE, BASE._replace(log=0), "idle:log=0")
    check(BASE, BASE._replace(log=5), "idle:host_work=0.5x")


@pytest.mark.parametrize(
    ("change", "has"),
    [
        ("compute:aten::mm=0.5x", "no operator or kernel matches; the run has backward, forward, optimizer"),
        ("collective[tp]=0", "no collective matches; the run has dp, all_reduce"),
        ("idle:sleep=0", "no idle time matches; the run has host_work, log"),
        ("rank7=healthy", "there is no trace of rank 7, but of 0-1"),
        ("sync=removed", "no synchronisation with a device matches; the run has none"),
        ("kernels<5us=fused", "the traces have no launches of kernels"),
        ("profiler=removed", "no work of the profiler matches; the run has none"),
        ("module:layers.*=0.5x", "no calls of modules: record them with --with-stack"),
        ("bucket_cap=1MB", "do not contain the sizes"),
    ],
)
def test_what_matches_nothing_is_refused_with_what_there_is(change: str, has: str) -> None:
    with pytest.raises(UsageError) as refused:
        predict(BASE, change)
    assert has in str(refused.value)


def test_what_needs_other_ranks_or_collectives_is_refused_for_one_rank_alone() -> None:
    alone = Training(load=(10,), forward=(10,), backward=((),), transfer=())
    for change in ("rank0=healthy", "overlap=removed", "accumulate=2", "ranks=4", "bucket_cap=1MB"):
        with pytest.raises(UsageError, match=change):
            predict(alone, change)


def test_the_saving_has_an_interval_over_enough_steps() -> None:
    assert predict(BASE, "input=0").interval_ns is not None
    assert predict(BASE._replace(steps=4), "input=0").interval_ns is None
