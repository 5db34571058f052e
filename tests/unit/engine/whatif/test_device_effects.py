"""Predictions of made traces of a device are what a trace made with the change shows."""

from pathlib import Path
from typing import NamedTuple

import pytest

from perfkit.errors import UsageError
from perfkit.pipeline import whatif
from perfkit.records.per_run.whatif import WhatIf
from tests.support.traces.trace_builder import TraceBuilder

STEPS = 6
OPERATOR_US, CALL_US, LATENCY_US, SYNC_US = 20, 6, 4, 5


class Loop(NamedTuple):
    """A loop that launches kernels, and may wait for the device at the end of each step; times in us."""

    kernels: tuple[int, ...]
    synchronise: bool = False
    host_after: int = 0
    """Work of the host after the wait."""
    launches: tuple[bool, ...] = ()
    """Whether each kernel has a launch of its own; else the host's operator is shorter by the call."""
    copy: int = 0
    """A copy before the kernels, which the host waits for."""


def record(folder: Path, loop: Loop) -> Path:
    """Write the trace of a loop: the host goes on as soon as it can, and so does the stream."""
    builder, host, free, correlation = TraceBuilder(world_size=1), 0, 0, 0
    for step in range(STEPS):
        begin = host
        if loop.copy:
            start = max(host + LATENCY_US, free)
            builder.launch(20_000 + step, host, start + loop.copy - host, name="cudaMemcpyAsync")
            builder.memcpy(start, loop.copy, 20_000 + step)
            host = free = start + loop.copy
        for number, duration in enumerate(loop.kernels):
            if loop.launches and not loop.launches[number]:
                builder.op("aten::add", host, OPERATOR_US - CALL_US)
                host += OPERATOR_US - CALL_US
                continue
            # A kernel that has no launch of its own is part of the one before.
            own = (*loop.launches[number + 1 :], True)
            fused = loop.kernels[number + 1 : number + 1 + own.index(True)] if loop.launches else ()
            whole = duration + sum(fused)
            correlation += 1
            builder.op("aten::add", host, OPERATOR_US).launch(correlation, host + 5, CALL_US)
            start = max(host + 5 + LATENCY_US, free)
            builder.kernel(f"kernel{number}", start, whole, correlation)
            free, host = start + whole, host + OPERATOR_US
        if loop.synchronise:
            until = max(host, free) + SYNC_US
            builder.launch(10_000 + step, host, until - host, name="cudaStreamSynchronize")
            host = until
        if loop.host_after:
            builder.op("aten::log", host, loop.host_after)
            host += loop.host_after
        builder.step(step, begin, host - begin)
    folder.mkdir()
    return builder.write(folder / "rank0.json")


def predict(trace: Path, change: str) -> WhatIf:
    result = whatif.predict(trace, [change])
    assert result.replayed_step_ns == result.measured_step_ns
    return result


def check(folder: Path, before: Loop, after: Loop, change: str, off_us: float = 0) -> None:
    one = predict(record(folder / "before", before), change).prediction
    assert one is not None
    truth = whatif.predict(record(folder / "after", after), ["compute:*=1x"])
    assert one.step_ns == pytest.approx(truth.measured_step_ns, abs=1000 * off_us)


def test_without_waiting_the_device_decides_how_long_a_step_takes(tmp_path: Path) -> None:
    """Host 3 * 20 + 30 us, device 3 * 50 us: the host may run ahead."""
    waits = Loop((50, 50, 50), synchronise=True, host_after=30)
    check(tmp_path, waits, waits._replace(synchronise=False), "sync=removed")


def test_without_waiting_the_host_decides_if_it_is_slower(tmp_path: Path) -> None:
    """Host 3 * 20 + 100 us, device 3 * 30 us."""
    waits = Loop((30, 30, 30), synchronise=True, host_after=100)
    check(tmp_path, waits, waits._replace(synchronise=False), "sync=removed", off_us=SYNC_US)


@pytest.mark.parametrize("kernel_us", [15, 50, 400])
@pytest.mark.parametrize("copy_us", [10, 300])
def test_copies_cost_what_the_host_waits_for_them_too(tmp_path: Path, kernel_us: int, copy_us: int) -> None:
    """A host that runs ahead of the device, or does not, is held up until a copy has ended, and launches late."""
    blocked = Loop((kernel_us,) * 3, host_after=30, copy=copy_us)
    check(tmp_path, blocked, blocked._replace(copy=0), "copies=0", off_us=LATENCY_US)


def test_short_kernels_that_follow_each_other_are_launched_at_once(tmp_path: Path) -> None:
    """A host that launches: the calls of the second and third of three short kernels are saved."""
    short = Loop((2, 3, 4, 30))
    check(tmp_path, short, short._replace(launches=(True, False, False, True)), "kernels<5us=fused", off_us=1)


def test_kernels_are_not_shorter_for_being_launched_at_once(tmp_path: Path) -> None:
    """A device that is busy all the time: nothing is saved."""
    one = predict(record(tmp_path / "busy", Loop((4, 4, 200, 300))), "kernels<5us=fused")
    assert one.prediction is not None
    assert 0 <= one.prediction.saving_ns < 0.005 * one.measured_step_ns


def test_the_name_of_an_operator_stands_for_its_kernels(tmp_path: Path) -> None:
    busy = Loop((100, 200))
    check(tmp_path, busy, Loop((50, 100)), "compute:aten::add=0.5x")


def test_a_kernel_is_known_by_its_own_name_too(tmp_path: Path) -> None:
    check(tmp_path, Loop((100, 200)), Loop((50, 200)), "compute:kernel0=0.5x")


def test_a_host_that_waits_is_slower_with_slower_kernels(tmp_path: Path) -> None:
    waits = Loop((50, 50, 50), synchronise=True, host_after=30)
    check(tmp_path, waits, waits._replace(kernels=(100, 100, 100)), "compute:kernel*=2x")


def allocating(folder: Path, allocation_us: int, name: str = "cudaMalloc") -> Path:
    """Write the trace of steps in which the host allocates, with the device idle, and launches a kernel."""
    builder, host = TraceBuilder(world_size=1), 0
    for step in range(STEPS):
        begin = host
        if allocation_us:
            builder.launch(10_000 + step, host, allocation_us, name=name)
        host += allocation_us
        builder.op("aten::add", host, OPERATOR_US).launch(step + 1, host + 5, CALL_US)
        builder.kernel("kernel", host + 5 + LATENCY_US, 8, step + 1)
        host += OPERATOR_US
        builder.step(step, begin, host - begin)
    folder.mkdir()
    return builder.write(folder / "rank0.json")


@pytest.mark.parametrize(
    ("call", "change"),
    [
        ("cudaMalloc", "idle:allocation=0"),
        ("cudaMalloc", "idle:cudaMalloc=0"),
        ("cuModuleLoadData", "idle:compilation=0"),
    ],
)
def test_calls_that_allocate_or_compile_are_idle_time_of_their_cause(tmp_path: Path, call: str, change: str) -> None:
    one = predict(allocating(tmp_path / "before", 40, call), change).prediction
    truth = whatif.predict(allocating(tmp_path / "after", 0), ["compute:*=1x"])
    assert one is not None
    assert one.step_ns == truth.measured_step_ns


def test_launches_are_neither(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no idle time matches"):
        whatif.predict(record(tmp_path / "busy", Loop((50, 50))), ["idle:allocation=0"])


def test_allocations_are_among_the_changes_that_are_ranked(tmp_path: Path) -> None:
    ranking = whatif.predict(allocating(tmp_path / "run", 40), []).ranking
    assert ranking
    assert ranking[0].changes[0].change == "idle:allocation=0"


def test_a_kernel_of_a_long_name_is_ranked_by_its_beginning(tmp_path: Path) -> None:
    """The change that is listed can be typed, and applies to this kernel alone."""
    long = "void at::native::batch_norm_kernel<c10::BFloat16, float, int>(at::Accessor<float const, 1ul, int>, float)"
    builder = TraceBuilder(world_size=1)
    for step in range(STEPS):
        begin = 200 * step
        builder.op("aten::add", begin, 20).launch(2 * step + 1, begin + 5, 6).launch(2 * step + 2, begin + 12, 6)
        builder.kernel(long, begin + 20, 100, 2 * step + 1).kernel(
            "void at::native::other<int>", begin + 120, 70, 2 * step + 2
        )
        builder.launch(10_000 + step, begin + 20, 180, name="cudaStreamSynchronize").step(step, begin, 200)
    trace = builder.write(tmp_path / "rank0.json")
    ranking = whatif.predict(trace, []).ranking or []
    changes = {one.changes[0].change: one for one in ranking}
    assert "compute:void at::native::batch_norm_kernel*=0.5x" in changes
    whole = whatif.predict(trace, [f"compute:{long}=0.5x"]).prediction
    assert whole is not None
    assert changes["compute:void at::native::batch_norm_kernel*=0.5x"].saving_ns == whole.saving_ns > 0
