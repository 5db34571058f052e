"""Memory per step: known curves, and unknown levels."""

from pathlib import Path

import msgspec
import pytest

import perfkit
from perfkit.records.rank import MemoryPeak, MemoryUse
from tests.support.traces.trace_builder import TraceBuilder


def memory_of(builder: TraceBuilder, tmp_path: Path) -> list[MemoryUse]:
    (run,) = perfkit.analyze(builder.write(tmp_path / "rank0.json"), cache=False).runs
    return run.ranks[0].memory


def two_steps(**header: object) -> TraceBuilder:
    """Two steps of a device that runs 30 us behind the host."""
    builder = TraceBuilder().header(**header).step(3, 0, 100).step(4, 100, 100)
    for step in range(2):
        at = 100 * step
        builder.op("aten::mm", at + 10, 5).launch(step, at + 12, 2).kernel("gemm", at + 40, 60, step)
        builder.annotation("forward", at + 5, 30).annotation("inner", at + 10, 10).annotation("backward", at + 50, 40)
    return builder


def test_a_known_curve_on_a_device(tmp_path: Path) -> None:
    builder = two_steps(deviceProperties=[{"id": 0, "totalGlobalMem": 16_000}])
    for at, total, change, reserved in (
        (-5, 1_000, 200, 4_000),  # before the steps: what step 3 begins with
        (15, 5_000, 4_000, 8_000),
        (60, 2_000, -3_000, 8_000),
        (105, 1_500, -500, 8_000),
        (155, 7_000, 5_500, 8_000),
        (156, 1_500, -5_500, 8_000),
        (199, 1_600, 100, 6_000),
        (260, 9_000, 7_400, 9_000),  # after the last step
    ):
        builder.memory(at, total, change, kind=1, device=0, reserved=reserved)
    (use,) = memory_of(builder, tmp_path)
    assert (use.device, use.limit_bytes) == ("device 0", 16_000)
    first = MemoryPeak(step=3, allocated_bytes=5_000, reserved_bytes=8_000, at_ns=15_000)
    second = MemoryPeak(step=4, allocated_bytes=7_000, reserved_bytes=8_000, at_ns=55_000)
    assert [msgspec.structs.replace(peak, unknown_bytes=None) for peak in use.steps] == [first, second]
    assert use.peak == use.steps[1]
    assert (use.phase, use.category) == ("backward", "compute")
    curve = list(zip(use.curve.at_ns, use.curve.allocated_bytes, strict=True))
    assert use.curve.step == 4
    assert curve == [
        *[(0, 2_000), (5_000, 1_500), (55_000, 7_000), (56_000, 1_500), (99_000, 1_600), (100_000, 1_600)],
    ]


def test_an_address_that_is_allocated_again_after_the_peak_may_have_been_released_before_it(tmp_path: Path) -> None:
    builder = two_steps()
    for at, total, change, address in (
        (10, 1_000, 1_000, 64),
        (20, 1_700, 700, 4_096),
        (30, 1_000, -700, 4_096),
        (150, 2_000, 1_000, 64),
    ):
        builder.memory(at, total, change, address=address)
    (use,) = memory_of(builder, tmp_path)
    assert [(peak.unknown_bytes, peak.unseen_release_bytes) for peak in use.steps] == [(0, 1_000), (1_000, 0)]


def test_what_a_thread_without_the_profiler_released_is_told_apart(tmp_path: Path) -> None:
    """An address that is allocated twice without a release between was released by a thread that is not recorded."""
    builder = two_steps()
    for at, total, change, address in (
        (10, 1_000, 1_000, 64),
        (20, 1_500, 500, 4_096),
        (30, 2_500, 1_000, 64),
        (40, 2_000, -500, 4_096),
        (150, 3_000, 1_000, 8_192),
        (160, 2_000, -1_000, 64),
    ):
        builder.memory(at, total, change, address=address)
    (use,) = memory_of(builder, tmp_path)
    assert [(peak.allocated_bytes, peak.unknown_bytes) for peak in use.steps] == [(2_500, 1_000), (3_000, 1_000)]
    assert use.peak == use.steps[1]
    assert use.at_peak
    assert use.at_peak.unknown == 1_000
    # Address 64 has a release in the second step, after the peaks of both.
    assert [peak.unseen_release_bytes for peak in use.steps] == [0, 0]
    (complete,) = memory_of(two_steps().memory(10, 900, 900, address=64), tmp_path)
    assert [peak.unknown_bytes for peak in complete.steps] == [0, 0]


def test_a_step_in_which_nothing_happens_has_what_it_begins_with(tmp_path: Path) -> None:
    (use,) = memory_of(two_steps().memory(20, 640, 600), tmp_path)
    assert use.device == "CPU"
    assert use.limit_bytes is None
    assert [(peak.allocated_bytes, peak.at_ns, peak.reserved_bytes) for peak in use.steps] == [
        (640, 20_000, None),
        (640, 0, None),
    ]
    assert (use.peak.step, use.phase) == (3, "forward")  # `inner` has ended by then
    assert use.curve.allocated_bytes == [40, 640, 640]


def test_what_is_before_the_first_record_is_its_total_without_its_change(tmp_path: Path) -> None:
    (known,) = memory_of(two_steps().memory(150, 100, -900), tmp_path)
    assert [(peak.allocated_bytes, peak.at_ns) for peak in known.steps] == [(1_000, 0), (1_000, 0)]
    (unknown,) = memory_of(two_steps().memory(150, 100, None), tmp_path)
    assert [(peak.step, peak.allocated_bytes, peak.at_ns) for peak in unknown.steps] == [(4, 100, 50_000)]
    assert unknown.curve.at_ns == [50_000, 100_000]


def test_a_device_without_known_levels_is_skipped(tmp_path: Path) -> None:
    assert memory_of(two_steps().memory(500, 100, None), tmp_path) == []
    assert memory_of(two_steps().memory(20, "x", 5), tmp_path) == []
    assert memory_of(two_steps(), tmp_path) == []


def test_a_trace_without_steps_is_one(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 10, 90).memory(5, 10, 10).memory(50, 30, 20).memory(200, 99, 69)
    (use,) = memory_of(builder, tmp_path)
    (peak,) = use.steps
    assert (peak.step, peak.allocated_bytes, peak.reserved_bytes, peak.at_ns) == (None, 30, None, 40_000)
    assert (peak.unknown_bytes, peak.unseen_release_bytes) == (10, 20)  # all of them have one address


@pytest.mark.parametrize("behind", [False, True])
def test_a_long_curve_is_thinned_out_and_keeps_its_extremes(tmp_path: Path, behind: bool) -> None:
    builder = two_steps()
    times = [f"{number / 200:.3f}" for number in range(20_000)]
    levels = [1_000 + number * 7919 % 1_000 for number in range(20_000)]
    levels[7_777], levels[12_345] = 9_999, 3
    records = list(zip(times, levels, strict=True))
    for at, level in reversed(records) if behind else records:
        builder.memory(at, level, 0)
    (use,) = memory_of(builder, tmp_path)
    assert len(use.curve.at_ns) <= 194
    shown = dict(zip(use.curve.at_ns, use.curve.allocated_bytes, strict=True))
    assert shown[38_885] == use.peak.allocated_bytes == max(shown.values()) == 9_999
    assert shown[61_725] == min(shown.values()) == 3
    assert use.curve.at_ns == sorted(use.curve.at_ns)
    assert shown[100_000] == levels[-1]


def test_cycles_of_a_rank_are_joined(tmp_path: Path) -> None:
    for cycle, (first, high) in enumerate([(0, 500), (10, 900), (20, 900)]):
        builder = TraceBuilder(base_ns=10**18 + cycle * 10**9).step(first, 0, 100).op("aten::mm", 0, 50)
        builder.memory(10 + cycle, high, high).write(tmp_path / f"rank0.cycle{cycle}.json")
    (run,) = perfkit.analyze(tmp_path, cache=False).runs
    (use,) = run.ranks[0].memory
    assert [(peak.step, peak.allocated_bytes) for peak in use.steps] == [(0, 500), (10, 900), (20, 900)]
    assert (use.peak.step, use.curve.step, use.curve.at_ns) == (10, 10, [0, 11_000, 100_000])


def test_the_summary_of_a_rank_stays_small(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 0, 10_000)
    for step in range(100):
        builder.step(step, 100 * step, 100)
    for number in range(20_000):
        kind = number % 2
        builder.memory(f"{number / 2:.3f}", 10**12 + number * 7919 % 10**9, 1, kind=kind, reserved=10**12)
    uses = memory_of(builder, tmp_path)
    assert [len(use.steps) for use in uses] == [100, 100]
    assert len(msgspec.msgpack.encode(uses)) < 29_000
