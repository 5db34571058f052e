"""Scaling series: which runs they contain, and their points."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.records.common import Finding
from perfkit.records.run import StepTimes
from perfkit.records.scaling import Estimate, MultiRunSummary, ScalingSeries
from tests.support.reports.report_builders import make_foreign_run, make_run
from tests.support.reports.scaling_builders import make_hosts, make_scaled, make_strong, make_weak
from tests.support.reports.worded import scaling


def found(*arguments: Any, **options: Any) -> MultiRunSummary:
    made = scaling(*arguments, **options)
    assert made is not None
    return made


def the(series: MultiRunSummary) -> ScalingSeries:
    (one,) = series.series
    return one


def values(estimates: Sequence[Estimate | None]) -> list[float | None]:
    return [None if one is None else one.value for one in estimates]


def test_strong_scaling_is_the_same_global_batch() -> None:
    series = the(found(make_strong(lambda p: 80 / p + 20, [1, 2, 4])))
    assert (series.kind, series.batch_size, series.name) == ("strong", 512, "gpt strong")
    assert [point.batch_size for point in series.points] == [512, 256, 128]
    assert [point.step_time.step_ns.value for point in series.points] == [100e6, 60e6, 40e6]
    assert values([point.speedup for point in series.points]) == pytest.approx([1, 100 / 60, 2.5])
    assert values([point.efficiency for point in series.points]) == pytest.approx([1, 100 / 120, 0.625])
    rates = [point.step_time.samples_per_s for point in series.points]
    assert values(rates) == pytest.approx([5120, 512 / 0.06, 12800])
    # A fifth of the work is serial.
    assert values([point.karp_flatt for point in series.points]) == [None, pytest.approx(0.2), pytest.approx(0.2)]


def test_weak_scaling_is_the_same_batch_per_rank() -> None:
    series = the(found(make_weak(lambda p: {2: 100, 4: 125}[p], [2, 4])))
    assert (series.kind, series.batch_size) == ("weak", 32)
    assert values([point.speedup for point in series.points]) == pytest.approx([1, 1.6])
    assert values([point.efficiency for point in series.points]) == pytest.approx([1, 0.8])
    assert [point.karp_flatt for point in series.points] == [None, None]
    assert series.points[1].step_time.tokens_per_s == pytest.approx(64 * 4 * 32 / 0.125)


def test_one_run_starts_a_strong_and_a_weak_series() -> None:
    runs = [make_scaled(1, 100), make_scaled(2, 55, batch=16), make_scaled(2, 105)]
    both = found(runs).series
    assert [(series.kind, [point.batch_size for point in series.points]) for series in both] == [
        ("strong", [32, 16]),
        ("weak", [32, 32]),
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"config": {"precision": "bfloat16"}},
        {"config": {"accumulate": 2}},
        {"source": "hdf5"},
        {"workload": "transformer"},
        {"versions": {"torch": "2.5.0"}},
        {"commit": "0123456789abcdef"},
        {"config": {"data_dir": "/elsewhere"}, "source": "hdf5"},
    ],
)
def test_configurations_are_never_mixed(change: dict[str, Any]) -> None:
    assert scaling([make_scaled(1, 100), make_scaled(2, 110, **change)]) is None
    both = [make_scaled(p, 100 + p, **extra) for p in (1, 2) for extra in ({}, change)]
    series = found(both).series
    assert [[point.world_size for point in one.points] for one in series] == [[1, 2], [1, 2]]
    assert all(len(point.step_time.runs) == 1 for one in series for point in one.points)


def test_options_without_effect_on_steps_are_ignored() -> None:
    change = {"steps": 40, "trace_dir": "other", "timeout": "1m", "data_dir": "other/.data"}
    assert found([make_scaled(1, 100), make_scaled(2, 110, config=change)]).series


def test_names_say_in_what_series_differ() -> None:
    runs = [make_scaled(p, 100, source=source) for source in ("memory", "hdf5") for p in (1, 2)]
    made = found(runs)
    assert [series.name for series in made.series] == ["gpt weak, memory", "gpt weak, hdf5"]
    assert [series.varies for series in made.series] == [{"source": "memory"}, {"source": "hdf5"}]


def test_series_of_different_batches_are_named_by_them() -> None:
    runs = [make_scaled(p, 100, batch=batch, name=f"{p}-{batch}") for batch in (24, 32) for p in (1, 2)]
    assert [series.name for series in found(runs).series] == ["gpt weak, batch 24", "gpt weak, batch 32"]


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [make_scaled(1, 100)],
        [make_scaled(1, 100, name="a"), make_scaled(1, 101, name="b")],
        [make_foreign_run(), make_foreign_run("other")],
        [make_run(), make_run("other", world_size=4)],  # says no batch of a step
    ],
)
def test_runs_that_belong_to_no_series_are_skipped(runs: list[Any]) -> None:
    assert scaling(runs) is None


def test_different_layouts_of_one_world_size_are_not_mixed() -> None:
    spread = [
        make_scaled(4, 90, name="spread", hosts=make_hosts(4, a_host=1)),
        make_scaled(2, 90, name="two", hosts=make_hosts(2, a_host=1)),
    ]
    packed = [
        make_scaled(4, 120, name="packed", hosts=make_hosts(4)),
        make_scaled(8, 130, name="eight", hosts=make_hosts(8, a_host=4)),
    ]
    series = found([*spread, *packed]).series
    assert [[(p.world_size, p.nodes) for p in one.points] for one in series] == [[(2, 2), (4, 4)], [(4, 1), (8, 2)]]


def test_failed_points_are_listed_and_not_measured() -> None:
    why = Finding(code="run_failed", severity="error", message="the run failed (rank 1: boom)")
    failed = make_scaled(
        4, 1, name="failed", state="failed", hosts=[], step_times=None, batch_size=None, findings=[why]
    )
    series = the(found([*make_weak(lambda p: 100 + p, [1, 2]), failed]))
    assert [point.world_size for point in series.points] == [1, 2]
    assert [(one.run, one.world_size, one.reason) for one in series.failed] == [("failed", 4, why.message)]


def test_a_failed_point_alone_makes_no_series() -> None:
    assert scaling([make_scaled(1, 100), make_scaled(2, 1, state="failed")]) is None


# ---- figures -------------------------------------------------------------------------------------------------------


def test_repeats_give_the_interval_over_runs() -> None:
    runs = [make_scaled(p, ms / p, name=f"{p}-{ms}", batch=64 // p) for p in (1, 2) for ms in (90, 100, 130)]
    one, two = the(found(runs)).points
    assert (one.step_time.resampled, one.step_time.step_ns) == ("runs", Estimate(value=100e6, interval=(90e6, 130e6)))
    assert len(one.step_time.runs) == 3
    assert two.speedup.value == 2
    assert two.speedup.interval is not None
    low, high = two.speedup.interval
    assert 2 * 90 / 130 <= low < 2 < high <= 2 * 130 / 90


def test_without_repeats_the_interval_is_over_steps() -> None:
    walls = [[100, 90, 110, 95, 105, 100, 99], [50, 45, 55, 50, 51, 49, 50]]
    series = the(found([make_scaled(p, 0, walls_ms=ms, batch=64 // p) for p, ms in zip((1, 2), walls, strict=True)]))
    assert [point.step_time.resampled for point in series.points] == ["steps", "steps"]
    assert any("over steps" in note for note in series.notes)
    assert series.points[0].step_time.step_ns.interval is not None


def test_few_steps_give_no_interval() -> None:
    series = the(found([make_scaled(p, 0, walls_ms=[100, 101], batch=64 // p) for p in (1, 2)]))
    assert [point.step_time.step_ns.interval for point in series.points] == [None, None]
    assert series.points[1].speedup.interval is None


def test_recorded_steps_are_compared_only_with_recorded_ones() -> None:
    only_recorded = make_scaled(2, 1, ranks=[], step_times=StepTimes(plain_ns=[], recorded_ns=[240_000_000] * 3))
    series = the(found([make_scaled(1, 100, ranks=[]), only_recorded]))
    assert [point.step_time.measured_on for point in series.points] == ["recorded", "recorded"]
    assert [point.step_time.step_ns.value for point in series.points] == [200e6, 240e6]  # by the runs' own clocks
    # With traces, those of the report.
    traced = the(found([make_scaled(1, 100, ranks=[]), replace(only_recorded, ranks=make_run().ranks)]))
    assert [point.step_time.step_ns.value for point in traced.points] == [200e6, 130e6]
    assert any("profiler overhead" in note for note in series.notes)
    neither = make_scaled(2, 1, ranks=[], step_times=StepTimes(plain_ns=[], recorded_ns=[]))
    assert scaling([make_scaled(1, 100), neither]) is None


def test_results_are_reproducible() -> None:
    runs = make_weak(lambda p: 100 + p, [1, 2, 4, 8], repeats=3, noise=0.1)
    assert scaling(runs) == scaling(runs)


def test_shared_cores_and_changing_threads_are_noted() -> None:
    runs = [
        make_scaled(1, 100, hosts=make_hosts(1, cores=2, threads=2)),
        make_scaled(2, 110, hosts=make_hosts(2, cores=2)),
        make_scaled(4, 220, hosts=make_hosts(4, cores=2)),
    ]
    series = the(found(runs))
    assert [point.oversubscribed for point in series.points] == [None, None, "4 ranks on 2 cores"]
    assert [point.threads for point in series.points] == [2, 1, 1]
    assert any("4 ranks on 2 cores" in note for note in series.notes)
    assert any("2 at 1, 1 at 2, 1 at 4" in note for note in series.notes)


@pytest.mark.parametrize(
    ("batches", "ms", "told"),
    [
        ((64, 64), (100, 80), "something may have slowed the steps at 1,"),
        ((64, 32), (100, 40), "the caches better, or something may have slowed"),
        ((64, 64), (100, 95), None),
        ((64, 32), (100, 47), None),
    ],
)
def test_an_efficiency_that_cannot_be_right_is_noted(
    batches: tuple[int, int], ms: tuple[int, int], told: str | None
) -> None:
    series = the(found([make_scaled(size, ms[at], batch=batches[at]) for at, size in enumerate((1, 2))]))
    noted = [note for note in series.notes if "above 110 %" in note]
    assert len(noted) == (told is not None)
    assert told is None or (noted[0].startswith("efficiency is above 110 % at 2 ranks: ") and told in noted[0])
    assert told is None or ("caches" in told) == ("caches" in noted[0])


@pytest.mark.parametrize("change", [{"batch_size": -4}, {"world_size": 0}, {"world_size": -1}])
def test_invalid_batch_or_world_sizes_belong_to_no_series(change: dict[str, int]) -> None:
    assert scaling([make_scaled(1, 100), make_scaled(2, 100, **change)]) is None  # type: ignore[arg-type]


def test_zero_step_times_do_not_divide_by_zero() -> None:
    still = StepTimes(plain_ns=[0] * 6, recorded_ns=[])
    series = the(found([make_scaled(1, 100), make_scaled(2, 100, step_times=still)]))
    assert series.points[1].step_time.step_ns.value == 1


def test_a_forecast_without_a_series_is_refused() -> None:
    with pytest.raises(UsageError, match="--forecast: no runs differ only in"):
        scaling([make_scaled(1, 100)], forecast=[8])


def of_mesh(mesh: str | None, ranks: int, step_ms: float, batch: int) -> Any:
    return make_scaled(ranks, step_ms, batch=batch, config={"mesh": mesh}, throughput=None, name=f"{mesh}-{batch}")


def test_ranks_that_share_samples_count_as_one() -> None:
    runs = [of_mesh("tp=2,dp=1", 2, 100, 32), of_mesh("tp=2,dp=2", 4, 60, 16), of_mesh("dp=4", 4, 70, 16)]
    series = the(found(runs))
    assert (series.kind, series.batch_size) == ("strong", 32)
    assert [(point.world_size, point.batch_size) for point in series.points] == [(2, 32), (4, 16)]
    rates = [point.step_time.samples_per_s for point in series.points]
    assert values(rates) == pytest.approx([320, 32 / 0.06])
    weak = the(found([of_mesh("pp=2", 2, 100, 32), of_mesh("pp=2,dp=2", 4, 110, 32)]))
    assert (weak.kind, weak.batch_size) == ("weak", 32)
    assert scaling([of_mesh("tp=2", 2, 100, 32), of_mesh("tp=4", 4, 90, 32)]) is None


@pytest.mark.parametrize("mesh", ["tp=3", "tp=0", "x", "tp=99999999999", 7, ["tp=2"]])
def test_a_mesh_that_makes_no_sense_divides_nothing(mesh: Any) -> None:
    runs = [of_mesh(mesh, ranks, 100 / ranks, 64 // ranks) for ranks in (1, 2)]
    assert [(one.kind, one.batch_size) for one in found(runs).series] == [("strong", 64)]
