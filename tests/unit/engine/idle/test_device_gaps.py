"""Causes of gaps between kernels, on traces made so that each cause is known."""

from pathlib import Path

import pytest

from perfkit.engine.trace_summary import TraceSummary
from perfkit.pipeline.summarize import summarize_trace
from perfkit.records.aggregate import OTHER_DETAILS
from perfkit.records.per_rank.idle import CAUSES, NO_LAUNCH, NOTHING_RECORDED, QUEUED_FOR_NOTHING, SILENT_THREAD
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder

Row = tuple[str, str, str | None, int, int]
"""Cause, detail, context, count and microseconds."""


def summarized(builder: TraceBuilder, tmp_path: Path) -> TraceSummary:
    path = builder.write(tmp_path / "rank0.json")
    return summarize_trace(read_trace(path), path.name)


def rows(builder: TraceBuilder, tmp_path: Path) -> set[Row]:
    """Return all causes, in whole microseconds; each must be one."""
    summary = summarized(builder, tmp_path)
    overhead_ns = sum(step.exposed_ns.overhead for step in summary.steps)
    assert sum(row.total_ns for row in summary.idle.causes) == overhead_ns
    assert all(row.total_ns % 1000 == 0 for row in summary.idle.causes)
    return {(row.cause, row.detail, row.context, row.count, row.total_ns // 1000) for row in summary.idle.causes}


def two_kernels(gap: int, launch: int = 5) -> TraceBuilder:
    """A step with a kernel from 10 to 1,000 us, and one that ends it, launched `launch` us before it starts.

    The host launches the first before the step begins to count: no time is idle but the gap.
    """
    after = 1000 + gap
    builder = TraceBuilder().step(1, 10, after + 490)
    builder.op("aten::mm", 0, 10).launch(1, 10, 0).kernel("gemm", 10, 990, 1)
    builder.op("aten::mm", after - launch - 3, 8).launch(2, after - launch, 3)
    return builder.kernel("gemm", after, 500, 2)


LATENCY = ("launch_bound", "from launch to start", None, 1, 2)
ISSUE = ("launch_bound", "aten::mm", None, 1, 6)


def test_reading_a_value_back(tmp_path: Path) -> None:
    builder = two_kernels(2_000).annotation("log", 980, 1_200)
    builder.op("aten::item", 990, 1_110).op("aten::_local_scalar_dense", 991, 1_108)
    builder.launch(9, 995, 1_100, name="cudaStreamSynchronize")
    found = rows(builder, tmp_path)
    assert found == {
        ("synchronisation", "aten::item", "log", 1, 1_100),
        ("host_work", "log", None, 1, 80),
        ("unknown", NOTHING_RECORDED, None, 1, 812),
        LATENCY,
        ISSUE,
    }


@pytest.mark.parametrize(
    "call", ["cudaDeviceSynchronize", "cudaEventSynchronize", "hipStreamSynchronize", "cuCtxSynchronize", "cudaMemcpy"]
)
def test_calls_that_wait(tmp_path: Path, call: str) -> None:
    builder = two_kernels(100).launch(9, 900, 150, name=call)
    assert ("synchronisation", call, None, 1, 50) in rows(builder, tmp_path)


@pytest.mark.parametrize("call", ["cudaEventQuery", "cudaMemcpyAsync", "cudaStreamWaitEvent", "cudaMallocAsyncX"])
def test_calls_that_do_not_wait(tmp_path: Path, call: str) -> None:
    builder = two_kernels(100).launch(9, 900, 150, name=call)
    assert "synchronisation" not in {row[0] for row in rows(builder, tmp_path)}


@pytest.mark.parametrize(("blocks", "cause"), [(True, "synchronisation"), (False, "launch_bound")])
def test_a_copy_blocks_if_its_call_lasts_until_it_is_done(tmp_path: Path, blocks: bool, cause: str) -> None:
    builder = TraceBuilder().step(1, 10, 2_000)
    builder.op("aten::mm", 0, 10).launch(1, 10, 0).kernel("gemm", 10, 990, 1)
    builder.op("aten::to", 980, 520).launch(2, 990, 500 if blocks else 311, name="cudaMemcpyAsync")
    builder.memcpy(1_300, 100, 2).op("aten::mm", 1_380, 15).launch(3, 1_384, 16).kernel("gemm", 1_400, 610, 3)
    found = rows(builder, tmp_path)
    assert (cause, "aten::to", None, 1, 300) in found
    assert sum(row[4] for row in found) == 300


def test_an_allocator_that_retries(tmp_path: Path) -> None:
    builder = two_kernels(900).op("aten::empty", 990, 860)
    builder.launch(8, 995, 505, name="cudaFree").launch(9, 1_500, 300, name="cudaMalloc")
    found = rows(builder, tmp_path)
    assert ("allocation", "cudaFree", "aten::empty", 1, 500) in found
    assert ("allocation", "cudaMalloc", "aten::empty", 1, 300) in found
    # What is left of the operator after its calls is part of issuing: the next launch follows within 1 ms.
    assert ("launch_bound", "aten::empty", None, 1, 50) in found


def test_many_small_operators_are_launch_bound(tmp_path: Path) -> None:
    builder = TraceBuilder().step(1, 0, 100 * 20)
    for number in range(100):
        at = 20 * number
        builder.op("aten::add", at, 12).launch(number, at + 5, 6).kernel("add", at + 13, 3, number)
    summary = summarized(builder, tmp_path)
    (step,) = summary.steps
    assert step.idle_ns.launch_bound == step.exposed_ns.overhead - 4_000  # after the last kernel
    assert (summary.idle.kernels, summary.idle.short_kernels) == (100, 100)
    by_detail = {row.detail: row.count for row in summary.idle.causes if row.cause == "launch_bound"}
    assert by_detail == {"aten::add": 100, "between operators": 99, "from launch to start": 100}


def test_an_operator_without_launches_is_work_of_the_host(tmp_path: Path) -> None:
    builder = two_kernels(5_000).op("aten::stack", 990, 4_900)
    assert ("host_work", "aten::stack", None, 1, 4_890) in rows(builder, tmp_path)


def test_work_that_was_queued_waited_on_the_device(tmp_path: Path) -> None:
    builder = TraceBuilder().step(1, 10, 2_000)
    builder.op("aten::mm", 0, 10).launch(1, 10, 0).kernel("gemm", 10, 90, 1)
    for number, (at, stream) in enumerate([(102, 7), (205, 8), (1_000, 7)], start=2):
        builder.launch(number, 12 + number, 1).kernel("gemm", at, 100, number, stream)
    builder.launch(9, 50, 1, name="cudaGraphLaunch").kernel("gemm", 1_101, 909, 9)
    assert rows(builder, tmp_path) == {
        ("dependency", "queued behind work of the same stream", None, 1, 2),
        ("dependency", "queued while another stream worked", None, 1, 3),
        ("dependency", QUEUED_FOR_NOTHING, None, 1, 695),
        ("dependency", "between the kernels of a graph", None, 1, 1),
    }


def test_a_kernel_that_starts_late_after_its_launch_waited(tmp_path: Path) -> None:
    found = rows(two_kernels(400, launch=350), tmp_path)
    assert ("launch_bound", "from launch to start", None, 1, 20) in found
    assert (
        "dependency",
        QUEUED_FOR_NOTHING,
        None,
        1,
        327,
    ) in found


def test_a_lost_launch_is_unknown(tmp_path: Path) -> None:
    builder = TraceBuilder().step(1, 10, 2_000).annotation("forward", 10, 2_000)
    builder.op("aten::mm", 0, 10).launch(1, 10, 0).kernel("gemm", 10, 90, 1).kernel("gemm", 500, 1_510)
    assert rows(builder, tmp_path) == {("unknown", NO_LAUNCH, None, 1, 400)}


def test_a_device_alone_tells_nothing(tmp_path: Path) -> None:
    builder = TraceBuilder().kernel("gemm", 10, 90).kernel("gemm", 500, 1_510)
    assert {row[0] for row in rows(builder, tmp_path)} == {"unknown"}


def test_the_thread_that_launches_the_next_kernel_decides(tmp_path: Path) -> None:
    builder = (
        two_kernels(1_000).op("aten::busy", 900, 1_200, tid=5).python_function("other.py(1): f", 900, 1_200, tid=5)
    )
    builder.python_function("train.py(7): augment", 900, 1_050)
    found = rows(builder, tmp_path)
    assert ("host_work", "train.py(7): augment", None, 1, 950) in found
    assert not {row for row in found if "busy" in row[1] or "other" in row[1]}


def test_before_autograd_s_thread_works_the_main_thread_decides(tmp_path: Path) -> None:
    builder = TraceBuilder().step(1, 10, 3_000)
    builder.op("aten::mm", 0, 10).launch(1, 10, 0).kernel("gemm", 10, 990, 1)
    builder.annotation("loss", 900, 1_000)
    builder.op("autograd::engine::evaluate_function: MmBackward0", 2_000, 60, 77).op("MmBackward0", 2_010, 40, 77)
    builder.launch(2, 2_020, 5, 77).kernel("gemm", 2_030, 980, 2)
    found = rows(builder, tmp_path)
    assert ("host_work", "loss", None, 1, 900) in found
    assert ("launch_bound", "MmBackward0", None, 1, 15) in found


def test_in_the_middle_of_a_backward_pass_an_annotation_around_it_is_no_cause(tmp_path: Path) -> None:
    def gap(annotated: int, first: int) -> set[Row]:
        builder = TraceBuilder().step(1, 10, 3_000).op("aten::mm", 0, 5)
        builder.annotation("## backward ##", annotated, 2_900 - annotated)
        builder.op("MmBackward0", first, 10, 77).launch(1, 10, 0, 77).kernel("gemm", 10, 990, 1)
        builder.op("MmBackward0", 2_010, 40, 77).launch(2, 2_020, 5, 77).kernel("gemm", 2_030, 980, 2)
        return rows(builder, tmp_path)

    silent = ("unknown", SILENT_THREAD, "## backward ##", 1, 1_010)
    assert silent in gap(annotated=2, first=5)
    # It has not worked since the annotation began: the main thread has not called it yet.
    found = gap(annotated=600, first=5)
    assert silent not in found
    assert ("host_work", "## backward ##", None, 1, 1_010) in found


def test_compilation_and_loading_of_code(tmp_path: Path) -> None:
    builder = two_kernels(9_000).op("compile_fx_inner (dynamo_timed)", 990, 5_010).op("aten::empty", 2_000, 10)
    builder.launch(7, 6_500, 1_000, name="cuModuleLoadData")
    builder.event("overhead", "Lazy Function Loading", 8_000, 500, pid=-1, tid=0)
    by_detail = {row[1]: row[4] for row in rows(builder, tmp_path) if row[0] == "compilation"}
    assert by_detail["compile_fx_inner (dynamo_timed)"] == 5_000
    assert by_detail["cuModuleLoadData"] == 1_000
    assert sum(by_detail.values()) == 6_500


def test_the_profiler_s_own_work(tmp_path: Path) -> None:
    builder = two_kernels(2_000).op("aten::mm", 990, 900).launch(9, 995, 700)
    builder.event("overhead", "Activity Buffer Request", 1_100, 500, pid=-1, tid=0)
    builder.event("overhead", "Command Buffer Full", 1_650, 10, pid=-1, tid=0)
    assert sum(row[4] for row in rows(builder, tmp_path) if row[0] == "profiler") == 500


def test_between_two_steps_only_the_profiler_runs(tmp_path: Path) -> None:
    builder = TraceBuilder().step(1, 0, 1_000).step(2, 1_400, 600)
    builder.op("aten::mm", 0, 20).launch(1, 0, 2).kernel("gemm", 5, 995, 1)
    builder.op("aten::mm", 1_450, 20).launch(2, 1_450, 20).kernel("gemm", 1_470, 530, 2)
    assert ("profiler", "between two steps", None, 1, 400) in rows(builder, tmp_path)


def test_gaps_are_counted_by_step(tmp_path: Path) -> None:
    builder = TraceBuilder().step(1, 0, 1_000).step(2, 1_000, 1_000).annotation("save", 0, 2_000)
    for number, at in enumerate((100, 1_100)):
        builder.op("aten::mm", at, 20).launch(number, at, 20).kernel("gemm", at + 20, 100, number)
    summary = summarized(builder, tmp_path)
    saves = [row for row in summary.idle.causes if row.detail == "save"]
    # Before and after each kernel: 100 and 780 us.
    assert [(row.cause, row.count, row.total_ns, row.max_ns) for row in saves] == [("host_work", 4, 1_760_000, 780_000)]
    for step in summary.steps:
        assert sum(getattr(step.idle_ns, cause) for cause in CAUSES) == step.exposed_ns.overhead


def test_many_details_are_added_up_by_cause(tmp_path: Path) -> None:
    builder = TraceBuilder().step(1, 0, 3_000_000)
    for number in range(250):
        at = 10_000 * number
        builder.annotation(f"part {number}", at, 9_000 + number)
        builder.launch(number, at + 9_500, 10).kernel("gemm", at + 9_515, 400, number)
    found = summarized(builder, tmp_path).idle.causes
    others = {row.cause: row for row in found if row.detail == OTHER_DETAILS}
    assert set(others) == {"host_work", "launch_bound"}
    assert len(found) == 102
    assert others["host_work"].count > 100
    total_ns = sum(row.total_ns for row in found if row.cause == "host_work")
    assert total_ns == sum((9_000 + number) * 1000 for number in range(250))
