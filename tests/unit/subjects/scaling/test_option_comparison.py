"""Runs that differ in one option only."""

import pytest

from perfkit.engine.runs.data_loading import load_times
from perfkit.errors import UsageError
from perfkit.records.rank import RankReport
from perfkit.records.run import CacheState, DataLoading
from perfkit.records.scaling import Estimate
from perfkit.subjects.scaling.option_comparison import profiled_order_findings
from tests.support.reports.report_builders import (
    MS,
    make_file_speed,
    make_foreign_run,
    make_loading,
    make_rank,
    make_step,
)
from tests.support.reports.scaling_builders import make_scaled
from tests.support.reports.worded import option_comparisons, scaling


def test_sources_are_compared_unasked_against_memory() -> None:
    slow = make_loading(source="hdf5", median_ns=9 * MS, max_ns=20 * MS, exposed_share=0.25, read_bytes_per_s=5e7)
    quick = make_loading(source="memory", median_ns=3 * MS, max_ns=4 * MS, exposed_share=0.05)
    runs = [make_scaled(2, 150, source="hdf5", data_loading=slow), make_scaled(2, 100, data_loading=quick)]
    together = scaling(runs)
    assert together is not None
    (axis,) = together.option_comparisons
    memory, hdf5 = axis.rows
    assert (axis.option, axis.world_size, axis.name) == ("source", 2, "gpt, batch 32 per rank")
    assert (memory.value, memory.ratio) == ("memory", None)
    assert hdf5.ratio is not None
    assert (hdf5.value, hdf5.ratio.value) == ("hdf5", 1.5)
    (of_memory,), (of_hdf5,) = memory.loads, hdf5.loads
    assert (of_memory.ratio, of_hdf5.ratio) == (Estimate(value=1, interval=None), Estimate(value=3, interval=None))
    assert (of_hdf5.times.quartiles_ns[1], of_hdf5.times.max_ns, hdf5.exposed_share) == (9 * MS, 20 * MS, 0.25)
    assert hdf5.read_bytes_per_s == 5e7


@pytest.mark.parametrize(("plain_ms", "profiled_ms", "said"), [(90, 110, True), (110, 90, True), (90, 95, False)])
def test_an_order_that_the_profiler_reverses_is_a_finding(plain_ms: int, profiled_ms: int, *, said: bool) -> None:
    def profiled(ms: int) -> list[RankReport]:
        steps = [make_step(number, compute=(ms - 40) * MS) for number in range(5, 11)]
        return [make_rank(rank, steps) for rank in range(2)]

    runs = [
        make_scaled(2, 100, ranks=profiled(100)),
        make_scaled(2, plain_ms, source="hdf5", ranks=profiled(profiled_ms)),
    ]
    found = list(profiled_order_findings(runs, option_comparisons(runs, [])))
    assert [finding.code for finding in found] == ["profiled_step_disagrees"] * said
    if said and plain_ms < 100:
        values = found[0].values
        assert (values["option"], values["value"], values["baseline"]) == ("source", "hdf5", "memory")
        assert (values["plain_ns"], values["profiled_ns"]) == ((100 * MS, 90 * MS), (100 * MS, 110 * MS))


def _loading_of(source: str, *loads_ms: float, cache: CacheState | None = None) -> DataLoading:
    times = load_times([ms * MS for ms in loads_ms], "plain", cache)
    return make_loading(source=source, times=[times])


def test_a_ratio_of_disturbed_loads_includes_that_of_the_quiet_ones() -> None:
    # Most loads from HDF5 met something else on the machine; 3.4 ms is what one takes.
    hdf5 = make_scaled(2, 150, source="hdf5", data_loading=_loading_of("hdf5", 3.4, 13, 14, 14, 14, 14, 15))
    memory = make_scaled(2, 100, data_loading=_loading_of("memory", 1, 1, 1, 1, 1, 1, 1.1))
    (axis,) = option_comparisons([hdf5, memory], [])
    ratio = axis.rows[1].loads[0].ratio
    assert ratio is not None
    assert ratio.interval is not None
    assert ratio.value == 14
    assert ratio.interval[0] == pytest.approx(3.4)
    assert ratio.interval[1] >= 14


def test_cold_and_warm_loads_are_rows_of_their_own() -> None:
    warm, cold = _loading_of("hdf5", *[3] * 5, cache="warm"), _loading_of("hdf5", *[30] * 5, cache="cold")
    hdf5 = make_scaled(
        2, 150, source="hdf5", data_loading=make_loading(source="hdf5", times=[*warm.times, *cold.times])
    )
    memory = make_scaled(2, 100, data_loading=_loading_of("memory", *[1.5] * 5))
    (axis,) = option_comparisons([hdf5, memory], [])
    found = [(one.times.cache, one.ratio and one.ratio.value) for one in axis.rows[1].loads]
    assert found == [("warm", 2), ("cold", 20)]


def test_repeats_of_loads_have_an_interval_over_the_runs() -> None:
    hdf5 = [
        make_scaled(2, 150 + ms, source="hdf5", name=f"hdf5-{ms}", data_loading=_loading_of("hdf5", *[ms] * 5))
        for ms in (2, 3, 7)
    ]
    memory = make_scaled(2, 100, data_loading=_loading_of("memory", *[1] * 5))
    (axis,) = option_comparisons([*hdf5, memory], [])
    times = axis.rows[1].loads[0].times
    assert (times.count, times.least_ns, times.quartiles_ns[1], times.max_ns) == (15, 2 * MS, 3 * MS, 7 * MS)
    assert times.interval_ns == (2 * MS, 7 * MS)


def test_sources_are_compared_with_memory_and_with_their_file() -> None:
    shares = [(1e9, 0.02, 0.5), (4e9, 0.04, None), (2e9, 0.03, 1.0)]
    hdf5 = [
        make_scaled(
            2,
            150 + number,
            source="hdf5",
            name=f"hdf5-{number}",
            data_loading=make_loading(
                source="hdf5",
                read_bytes_per_s=4e7,
                file_bandwidth=make_file_speed(bytes_per_s=alone, cached_share=cached),
                file_share=part,
            ),
        )
        for number, (alone, part, cached) in enumerate(shares)
    ]
    memory = make_scaled(2, 100, data_loading=make_loading(source="memory", read_bytes_per_s=8e7))
    (axis,) = option_comparisons([*hdf5, memory], [])
    first, second = axis.rows
    assert (first.memory_share, first.file_share, first.file_bytes_per_s) == (1.0, None, None)
    assert (second.memory_share, second.file_share, second.file_bytes_per_s) == (0.5, 0.03, 2e9)
    assert second.file_cached_share == 0.75  # of the two that know it


def test_unknown_read_rates_stay_unknown() -> None:
    waiting = make_loading(read_bytes_per_s=None, file_share=None)  # loader workers read ahead
    runs = [make_scaled(2, 150, source="hdf5", data_loading=waiting), make_scaled(2, 100)]
    (axis,) = option_comparisons(runs, [])
    hdf5 = axis.rows[1]
    assert (hdf5.read_bytes_per_s, hdf5.memory_share, hdf5.file_share) == (None, None, None)
    assert hdf5.file_bytes_per_s == 2e9


def test_any_option_can_be_compared() -> None:
    runs = [make_scaled(2, 80, config={"compile": True}, name="compiled"), make_scaled(2, 100)]
    assert option_comparisons(runs, []) == []
    (axis,) = option_comparisons(runs, ["compile"])
    assert [row.value for row in axis.rows] == ["off", "on"]
    assert axis.rows[1].ratio is not None
    assert axis.rows[1].ratio.value == 0.8


def test_repeats_are_one_row_with_an_interval_over_runs() -> None:
    runs = [
        make_scaled(1, ms, config={"precision": precision}, name=f"{precision}-{ms}")
        for precision, times in (("bfloat16", (50, 52, 54)), ("float32", (100, 101, 102)))
        for ms in times
    ]
    (axis,) = option_comparisons(runs, ["precision"])
    first, second = axis.rows
    assert (first.value, len(first.step_time.runs), first.step_time.resampled) == ("float32", 3, "runs")
    assert second.ratio is not None
    assert second.ratio.interval is not None
    assert second.ratio.interval[1] < 0.6


def test_world_sizes_and_batches_are_compared_separately() -> None:
    runs = [
        make_scaled(p, 100, batch=batch, source=source, name=f"{p}{batch}{source}")
        for p, batch in ((1, 32), (2, 32), (2, 16))
        for source in ("memory", "safetensors")
    ]
    assert [(axis.world_size, axis.name.rpartition("batch ")[2]) for axis in option_comparisons(runs, [])] == [
        (1, "32 per rank"),
        (2, "32 per rank"),
        (2, "16 per rank"),
    ]


def test_companion_options_are_never_mixed_in_one_row() -> None:
    runs = [
        make_scaled(1, 100),
        make_scaled(1, 120, source="hdf5", config={"hdf5_chunk": None}, name="a"),
        make_scaled(1, 300, source="hdf5", config={"hdf5_chunk": 32}, name="b"),
    ]
    (axis,) = option_comparisons(runs, ["source"])
    assert [row.value for row in axis.rows] == ["memory", "hdf5, hdf5_chunk=none", "hdf5, hdf5_chunk=32"]


def test_an_option_without_comparable_runs_is_refused_and_lists_the_others() -> None:
    runs = [make_scaled(1, 100), make_scaled(1, 90, config={"precision": "bfloat16", "compile": True})]
    with pytest.raises(UsageError, match=r"--by overlap: no runs differ only in that option; they differ in .*compile"):
        option_comparisons(runs, ["overlap"])
    with pytest.raises(UsageError, match="they differ in no option"):
        option_comparisons([make_foreign_run()], ["compile"])


def test_runs_that_differ_in_the_batch_size_are_not_said_to_be_equal() -> None:
    with pytest.raises(UsageError, match="they differ in the batch size, and so in what a step is"):
        option_comparisons([make_scaled(1, 100, batch=8), make_scaled(1, 90, batch=64)], ["batch_size"])
