"""The reference implementation against arithmetic done by hand, rule by rule, and the published examples."""

from dataclasses import replace
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.traces.generated_traces import cpu_traces, slow_to_generate, traces
from tests.support.traces.reference import (
    ORDER,
    Category,
    ReferenceStep,
    is_communication_kernel_name,
    reference,
)
from tests.support.traces.trace_builder import BASE_NS, TraceBuilder, encode

TRACES = Path(__file__).parents[1] / "data" / "traces"
REAL = sorted(TRACES.glob("**/*.json.gz"))

RING = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def gpu() -> TraceBuilder:
    return TraceBuilder(base_ns=None)


def cpu() -> TraceBuilder:
    return TraceBuilder(base_ns=None, backend="gloo")


def only(builder: TraceBuilder) -> ReferenceStep:
    steps = reference(builder.to_dict())
    assert len(steps) == 1
    assert steps == reference(builder.to_bytes())
    return steps[0]


def exposed_us(step: ReferenceStep) -> list[float]:
    assert sum(step.exposed_ns.values()) == step.wall_ns
    return [step.exposed_ns[c] / 1000 for c in ORDER]


def total_us(step: ReferenceStep) -> list[float]:
    return [step.total_ns[c] / 1000 for c in ORDER[:-1]]


def windows_us(builder: TraceBuilder) -> list[tuple[int | None, float, float]]:
    return [(s.step, s.start_ns / 1000, s.wall_ns / 1000) for s in reference(builder.to_dict())]


# ---- section 1: time -----------------------------------------------------------------------------


def test_time_is_exact_at_epoch_scale() -> None:
    # 1767189312000000000 + 3743411230047485; a float of that size is a multiple of 256.
    step = only(TraceBuilder().step(0, "3743411230047.485", "0.001"))
    assert (step.start_ns, step.wall_ns) == (1770932723230047485, 1)


def test_base_time_is_added_to_start_but_not_to_duration() -> None:
    step = only(TraceBuilder(base_ns=BASE_NS).step(0, 1, 2))
    assert (step.start_ns, step.wall_ns) == (BASE_NS + 1000, 2000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1.0005", 1000), ("1.0015", 1002), ("1.00050001", 1001), ("1.0004999", 1000)],
)
def test_beyond_three_decimals_rounds_half_to_even(text: str, expected: int) -> None:
    # 1000.5 ns lies between 1000 (even) and 1001; 1001.5 between 1001 and 1002 (even).
    assert only(gpu().step(0, text, 5)).start_ns == expected


def test_start_and_duration_are_rounded_each_by_itself() -> None:
    # 1.5 ns rounds to 2, twice: the span is [2, 4), although the exact end is 3.0.
    step = only(gpu().step(0, "0.0015", "0.0015"))
    assert (step.start_ns, step.wall_ns) == (2, 2)


def test_floats_of_a_decoded_document_are_read_as_they_print() -> None:
    document = gpu().step(0, "0.3", "0.1").to_dict()
    document["traceEvents"] = [
        {k: float(v) if isinstance(v, Decimal) else v for k, v in e.items()} for e in document["traceEvents"]
    ]
    assert (reference(document)[0].start_ns, reference(document)[0].wall_ns) == (300, 100)


def test_negative_and_missing_durations_are_empty_spans_that_still_start() -> None:
    # Without steps the window reaches from the earliest start (10) to the latest end (30).
    assert windows_us(cpu().op("a", 10, -5).op("b", 30, None)) == [(None, 10, 20)]
    assert windows_us(cpu().op("a", 10, -5)) == [(None, 10, 0)]


def test_invalid_utf8_and_control_characters_are_read() -> None:
    raw = cpu().step(0, 0, 10).op("aten::XX", 1, 2).to_bytes().replace(b"XX", b"\xff\x01")
    assert exposed_us(reference(raw)[0]) == [2, 0, 0, 0, 8]


def test_a_bare_list_of_events_and_an_empty_document() -> None:
    assert reference({"traceEvents": []}) == []
    raw = b'[{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2}]'
    assert [(s.start_ns, s.wall_ns) for s in reference(raw)] == [(1000, 2000)]


# ---- section 2: kinds ----------------------------------------------------------------------------


@pytest.mark.parametrize("cat", ["gpu_user_annotation", "cuda_sync", "overhead", "ac2g"])
def test_what_is_not_device_work(cat: str) -> None:
    # Were it device work, the trace would not be CPU-only and the operator would not count.
    step = only(gpu().step(0, 0, 10).op("aten::mm", 2, 3).device(cat, "x", 4, 5, None, 7))
    assert exposed_us(step) == [3, 0, 0, 0, 7]


def test_python_frames_are_never_work() -> None:
    step = only(cpu().step(0, 0, 10).python_function("train.py(1): main", 0, 10))
    assert exposed_us(step) == [0, 0, 0, 0, 10]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (RING, True),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long)", True),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", True),
        ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", True),
        ("ncclSymkDevKernel_AllGather_STMC(ncclSymkDevWorkArgs4K)", True),
        ("mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*, mscclWork*)", True),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)", True),
        ("void quickreduce::allreduce_prototype_twoshot<AllReduceTwoshot<x>, __half>(x*)", True),
        ("void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(x*)", True),
        ("void deep_ep::intranode::dispatch<8, 768>(int4*)", True),
        ("void primus_turbo::deep_ep::intranode::cached_notify_dispatch<8>(int const*)", True),
        ("void aiter::reduce_scatter_cross_device_store<bf16, 8>(RankData*)", True),
        ("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", True),
        ("allreduce_large_read_write_ipc<float, 4>", True),
        ("oneccl_invoke_barrier", True),
        ("hipblasGemm", False),
        ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(x)", False),
        ("void at::native::elementwise_kernel<ncclKernel_AllReduce>(ncclDevComm*)", False),
        ("void splitKreduce_kernel<float, float>(x)", False),
        ("void broadcast_kernel(float*)", False),
        ("", False),
    ],
)
def test_communication_by_the_kernels_own_name(name: str, expected: bool) -> None:
    assert is_communication_kernel_name(name) is expected


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("record_param_comms", "communication"),
        ("record_param_comms_x", "compute"),
        ("c10d::allreduce_", "communication"),
        ("_c10d_functional::all_reduce", "communication"),
        ("nccl:all_reduce", "communication"),
        ("xccl:all_reduce", "communication"),
        ("aten::mm", "compute"),
    ],
)
def test_communication_by_the_launching_operator(operator: str, expected: Category) -> None:
    trace = gpu().step(0, 0, 100).op(operator, 10, 10).launch(1, 12, 2).kernel("generic", 50, 7, 1)
    assert only(trace).exposed_ns[expected] == 7000


def test_the_annotation_nccl_counts_as_a_launching_operator() -> None:
    trace = gpu().step(0, 0, 100).op("aten::x", 10, 20).annotation("nccl:all_reduce", 11, 9)
    trace.launch(1, 12, 2).kernel("generic", 50, 7, 1)
    assert only(trace).exposed_ns["communication"] == 7000


def test_an_ordinary_annotation_does_not() -> None:
    trace = gpu().step(0, 0, 100).op("c10d::allreduce_", 10, 20).annotation("my phase", 11, 9)
    trace.launch(1, 12, 2).kernel("generic", 50, 7, 1)
    assert only(trace).exposed_ns["communication"] == 7000


def test_a_copy_kernel_launched_inside_a_collective_is_compute() -> None:
    trace = gpu().step(0, 0, 100).op("c10d::allreduce_", 10, 20).op("aten::copy_", 11, 5)
    trace.launch(1, 12, 2).kernel("flatten", 50, 7, 1)
    trace.launch(2, 16, 2).kernel("generic", 60, 3, 2)  # 16: aten::copy_ has just ended
    assert exposed_us(only(trace))[:2] == [7, 3]


def test_only_the_launching_thread_and_the_start_of_the_launch_decide() -> None:
    trace = gpu().step(0, 0, 100).op("c10d::allreduce_", 10, 20, tid=2)
    trace.launch(1, 12, 2, tid=1).kernel("a", 50, 7, 1)  # another thread: compute
    trace.launch(2, 9, 5, tid=2).kernel("b", 60, 2, 2)  # starts before the operator: compute
    trace.launch(3, 30, 5, tid=2).kernel("c", 65, 4, 3)  # starts when it has ended: compute
    trace.launch(4, 10, 5, tid=2).kernel("d", 70, 1, 4)  # starts with it: communication
    assert exposed_us(only(trace))[:2] == [7 + 2 + 4, 1]


def test_the_innermost_is_the_latest_started_then_the_shortest_then_the_later_in_the_trace() -> None:
    crossing = gpu().step(0, 0, 100).op("c10d::x", 10, 20).op("aten::y", 5, 10)
    assert only(crossing.launch(1, 12, 1).kernel("k", 50, 7, 1)).exposed_ns["communication"] == 7000
    shorter = gpu().step(0, 0, 100).op("c10d::x", 10, 20).op("aten::y", 10, 30)
    assert only(shorter.launch(1, 12, 1).kernel("k", 50, 7, 1)).exposed_ns["communication"] == 7000
    later = gpu().step(0, 0, 100).op("c10d::x", 10, 20).op("aten::y", 10, 20)
    assert only(later.launch(1, 12, 1).kernel("k", 50, 7, 1)).exposed_ns["compute"] == 7000


def test_of_several_launches_with_one_id_the_earliest_counts() -> None:
    trace = gpu().step(0, 0, 100).op("c10d::x", 10, 5)
    trace.launch(1, 20, 2).launch(1, 11, 2, cat="cuda_driver").kernel("k", 50, 7, 1)
    assert only(trace).exposed_ns["communication"] == 7000


@pytest.mark.parametrize("cat", ["cuda_driver", "hip_runtime", "xpu_runtime", "mtia_runtime", "privateuse1_driver"])
def test_launches_of_other_accelerators(cat: str) -> None:
    trace = gpu().step(0, 0, 100).op("c10d::x", 10, 5).launch(1, 11, 2, cat=cat)
    assert only(trace.kernel("k", 50, 7, 1)).exposed_ns["communication"] == 7000


def test_a_host_gloo_annotation_is_no_communication_beside_device_work() -> None:
    trace = gpu().step(0, 0, 100).gloo("all_reduce", 10, 20).kernel("k", 50, 7)
    assert exposed_us(only(trace)) == [7, 0, 0, 0, 93]


def test_old_traces() -> None:
    trace = gpu().op("ProfilerStep#3", 0, 100, cat="Operator")
    trace.op("enumerate(DataLoader)#_SingleProcess.__next__", 0, 20, cat="Operator")
    trace.launch(1, 30, 2, cat="Runtime").device("Kernel", "gemm", 50, 7, 1, 7)
    trace.device("Memcpy", "Memcpy HtoD", 60, 2, 2, 7).device("Memset", "Memset", 70, 3, 3, 7)
    step = only(trace)
    assert (step.step, exposed_us(step)) == (3, [7, 0, 2 + 3, 20, 68])


# ---- section 3: steps ----------------------------------------------------------------------------


def test_without_steps_the_whole_trace_is_one() -> None:
    # Operators from 5, device activity up to 60; the annotation and the launch do not count.
    trace = gpu().annotation("phase", 0, 90).op("a", 5, 5).launch(1, 2, 1).kernel("k", 50, 10, 1)
    assert windows_us(trace) == [(None, 5, 55)]


def test_without_steps_every_load_belongs_to_the_one_step() -> None:
    step = only(cpu().data_loading(0, 10).op("a", 5, 5))
    assert (step.loads, exposed_us(step)) == ([10_000], [0, 0, 0, 5, 0])


def test_neither_steps_nor_work_is_no_step() -> None:
    assert reference(cpu().annotation("phase", 0, 90).to_dict()) == []


def test_steps_of_the_host_where_there_is_no_device() -> None:
    trace = cpu().step(4, 0, 10).step(5, 12, 8).op("a", 15, 30)
    # The gap of 2 belongs to step 4; the last ends with its annotation, not with the operator.
    assert windows_us(trace) == [(4, 0, 12), (5, 12, 8)]


def test_a_step_begins_when_the_device_has_left_the_one_before() -> None:
    # c = 0, 100, 200; activities by launch: step 0 [50, 130), step 1 [140, 230), step 2 [240, 260).
    trace = gpu().step(0, 0, 100).step(1, 100, 100).step(2, 200, 10)
    trace.launch(1, 10, 1).kernel("a", 50, 80, 1)
    trace.launch(2, 110, 1).kernel("b", 140, 90, 2)
    trace.launch(3, 205, 1).kernel("c", 240, 20, 3)
    # b_1 = max(100, min(130, 140), 0) = 130; b_2 = max(200, min(230, 240), 130) = 230;
    # end = max(210, 260) = 260.
    assert windows_us(trace) == [(0, 0, 130), (1, 130, 100), (2, 230, 30)]


def test_a_step_that_overlaps_the_one_before_on_the_device_begins_with_its_first_activity() -> None:
    trace = gpu().step(0, 0, 100).step(1, 100, 100)
    trace.launch(1, 10, 1).kernel("long", 50, 100, 1)  # [50, 150)
    trace.launch(2, 110, 1).kernel("b", 120, 10, 2, stream=8)  # s_1 = 120 < E_0 = 150
    assert windows_us(trace) == [(0, 0, 120), (1, 120, 80)]


def test_the_latest_end_reaches_back_over_all_steps_before() -> None:
    trace = gpu().step(0, 0, 10).step(1, 10, 10).step(2, 20, 10)
    trace.launch(1, 1, 1).kernel("long", 5, 45, 1)  # E_0 = 50
    trace.launch(2, 11, 1).kernel("b", 12, 3, 2, stream=8)  # E_1 = max(50, 15) = 50
    trace.launch(3, 21, 1).kernel("c", 40, 20, 3, stream=8)  # b_2 = max(20, min(50, 40), 12) = 40
    assert windows_us(trace) == [(0, 0, 12), (1, 12, 28), (2, 40, 20)]


def test_a_step_without_device_activity_begins_with_the_host_but_not_before_the_last_began() -> None:
    trace = gpu().step(0, 0, 10).step(1, 10, 10).step(2, 20, 10)
    trace.launch(1, 1, 1).kernel("a", 2, 40, 1)  # E_0 = 42
    trace.launch(2, 11, 1).kernel("b", 45, 5, 2)  # b_1 = max(10, min(42, 45), 0) = 42
    # b_2 = max(20, b_1) = 42: step 1 is empty, and all of [42, 50) is step 2's.
    assert windows_us(trace) == [(0, 0, 42), (1, 42, 0), (2, 42, 8)]


def test_the_first_step_with_device_activity_waits_for_nothing() -> None:
    trace = gpu().step(0, 0, 10).step(1, 10, 10).launch(1, 11, 1).kernel("a", 15, 2, 1)
    assert windows_us(trace) == [(0, 0, 10), (1, 10, 10)]


def test_activities_go_by_launch_and_by_their_own_start_where_there_is_none() -> None:
    trace = gpu().step(0, 0, 10).step(1, 10, 10)
    trace.launch(1, 9, 3).kernel("a", 12, 2, 1)  # step 0: E_0 = 14
    trace.kernel("b", 16, 9, 99)  # no launch 99: step 1, s_1 = 16, E_1 = 25
    # b_1 = max(10, min(14, 16), 0) = 14; end = max(20, 25)
    assert windows_us(trace) == [(0, 0, 14), (1, 14, 11)]


def test_work_from_before_the_first_step_belongs_to_none_but_its_time_is_its_time() -> None:
    trace = gpu().step(0, 10, 10).launch(1, 5, 1).kernel("early", 6, 30, 1)
    # E counts only activities of steps: the window ends with the host at 20, all of it compute.
    assert windows_us(trace) == [(0, 10, 10)]
    assert exposed_us(only(trace)) == [10, 0, 0, 0, 0]


def test_empty_activities_still_start_and_end() -> None:
    trace = gpu().step(0, 0, 10).step(1, 10, 10)
    trace.launch(1, 1, 1).kernel("a", 18, 0, 1).launch(2, 11, 1).kernel("b", 19, 0, 2)
    # b_1 = max(10, min(E_0 = 18, s_1 = 19), 0) = 18
    assert windows_us(trace) == [(0, 0, 18), (1, 18, 2)]


def test_overlapping_step_annotations() -> None:
    # c = 0, 8, 20: the host's step is [c_k, c_{k+1}), whatever the annotations' ends say.
    assert windows_us(cpu().step(0, 0, 15).step(1, 8, 30).step(2, 20, 5)) == [
        (0, 0, 8),
        (1, 8, 12),
        (2, 20, 5),
    ]


@pytest.mark.parametrize(
    ("marker", "steps"),
    [("^train", [7, 8]), (r"train (\d+) of \d+", [7, 8]), ("forward", [0, 1]), ("none", [None])],
)
def test_step_marker(marker: str, steps: list[int | None]) -> None:
    trace = cpu().step(0, 0, 40).op("a", 0, 40)
    for start, n in ((0, 7), (20, 8)):
        name = f"train {n} of 9" if "of" in marker else f"train {n}"
        trace.annotation(name, start, 20).annotation("forward pass", start + 1, 5)
    assert [s.step for s in reference(trace.to_dict(), step_marker=marker)] == steps


# ---- section 4: breakdown ------------------------------------------------------------------------


def test_every_instant_goes_to_the_first_category_that_applies() -> None:
    trace = gpu().step(0, 0, 100).data_loading(0, 50)
    trace.memset(10, 30).kernel(RING, 20, 30, stream=8).kernel("gemm", 25, 5).memcpy(80, 5)
    # data_loading [0, 10) = 10 (in [40, 50) communication runs); memcpy [10, 20) + [80, 85) = 15;
    # communication [20, 25) + [30, 50) = 25; compute [25, 30) = 5; rest [50, 80) + [85, 100) = 45
    step = only(trace)
    assert exposed_us(step) == [5, 25, 15, 10, 45]
    assert total_us(step) == [5, 30, 30 + 5, 50]


def test_totals_are_unions_clipped_to_the_window() -> None:
    trace = gpu().step(0, 10, 50).kernel("a", 12, 20).kernel("b", 20, 20, stream=8)
    trace.data_loading(0, 15).data_loading(5, 8)
    step = only(trace)
    # kernels: [12, 40) = 28; loading: [0, 15) from 10 on = 5, of which [12, 15) hidden
    assert (total_us(step), exposed_us(step)) == ([28, 0, 0, 5], [28, 0, 0, 2, 20])


def test_cpu_the_innermost_operator_decides() -> None:
    trace = cpu().step(0, 0, 100)
    trace.op("autograd::engine::evaluate_function: X", 10, 50)  # compute but for what is inside
    trace.op("c10d::wait_tensor", 20, 20).op("aten::copy_", 25, 5)
    # compute [10, 20) + [25, 30) + [40, 60) = 35; communication [20, 25) + [30, 40) = 15
    step = only(trace)
    assert (exposed_us(step), total_us(step)) == ([35, 15, 0, 0, 50], [35, 15, 0, 0])


def test_cpu_crossing_operators_the_latest_started_decides() -> None:
    trace = cpu().step(0, 0, 100).op("aten::a", 10, 20).op("c10d::b", 20, 20)
    assert exposed_us(only(trace))[:2] == [10, 20]


def test_cpu_threads_are_looked_at_each_by_itself() -> None:
    trace = cpu().step(0, 0, 100).op("c10d::a", 10, 30, tid=1).op("aten::b", 20, 5, tid=2)
    step = only(trace)
    # On thread 1 communication runs throughout; while thread 2 computes it is hidden.
    assert (exposed_us(step)[:2], total_us(step)[:2]) == ([5, 25], [5, 30])


def test_cpu_gloo_annotations_count_whole_and_are_no_part_of_nesting() -> None:
    trace = cpu().step(0, 0, 100).op("aten::a", 10, 20).gloo("recv", 20, 30, tid=1)
    step = only(trace)
    # The operator goes on to 30 although gloo:recv started later on its thread.
    assert (exposed_us(step)[:2], total_us(step)[:2]) == ([20, 20], [20, 30])


def test_cpu_a_nccl_annotation_is_nothing() -> None:
    assert exposed_us(only(cpu().step(0, 0, 10).annotation("nccl:all_reduce", 2, 5)))[1] == 0


def test_cpu_operators_inside_data_loading_belong_to_it() -> None:
    trace = cpu().step(0, 0, 100).data_loading(10, 30)
    trace.op("aten::stack", 15, 10)  # inside: data loading
    trace.op("aten::x", 35, 15)  # crosses its end: compute [35, 50)
    trace.op("aten::y", 20, 5, tid=2)  # another thread: compute
    assert exposed_us(only(trace)) == [15 + 5, 0, 0, 30 - 5 - 5, 100 - 40]


def test_cpu_an_operator_around_data_loading_computes() -> None:
    trace = cpu().step(0, 0, 100).op("aten::outer", 5, 50).data_loading(10, 30)
    assert exposed_us(only(trace)) == [50, 0, 0, 0, 50]


def test_loads_are_counted_where_they_begin_and_once() -> None:
    trace = cpu().step(0, 10, 20).step(1, 30, 20)
    trace.data_loading(5, 2)  # before the first step: none
    trace.data_loading(12, 8).data_loading(13, 3, name="perfkit.data_loading")  # one load of 8
    trace.data_loading(29, 6, tid=2)  # begins in step 0
    trace.data_loading(30, 1)
    trace.data_loading(70, 4)  # when the last window has ended: none
    loads = [s.loads for s in reference(trace.to_dict())]
    assert loads == [[8_000, 6_000], [1_000]]


def test_loads_go_by_the_hosts_step_not_by_the_window() -> None:
    trace = gpu().step(0, 0, 10).step(1, 10, 20).data_loading(12, 3)
    trace.launch(1, 1, 1).kernel("a", 2, 18, 1).launch(2, 16, 1).kernel("b", 22, 2, 2)
    # b_1 = max(10, min(20, 22), 0) = 20: the load lies in step 0's window, but in the host's step 1
    first, second = reference(trace.to_dict())
    assert (first.loads, second.loads) == ([], [3_000])
    assert (first.total_ns["data_loading"], second.total_ns["data_loading"]) == (3_000, 0)


# ---- any trace -----------------------------------------------------------------------------------


def check_invariants(steps: list[ReferenceStep]) -> None:
    """Windows tile, exposed time adds up, no category is longer than its union or the window."""
    for step, following in pairwise(steps):
        assert step.start_ns + step.wall_ns == following.start_ns
    for step in steps:
        assert sum(step.exposed_ns.values()) == step.wall_ns
        assert all(step.exposed_ns[c] <= step.total_ns[c] <= step.wall_ns for c in ORDER[:-1])


@slow_to_generate
@given(traces())
def test_any_trace_tiles_adds_up_and_reads_the_same_from_json(document: dict[str, Any]) -> None:
    steps = reference(document)
    check_invariants(steps)
    assert reference(encode(document)) == steps


@given(cpu_traces(), st.integers(0, 10**19))
def test_a_later_base_time_moves_the_steps_and_nothing_else(document: dict[str, Any], shift: int) -> None:
    moved = reference({**document, "baseTimeNanoseconds": shift})
    still = reference({**document, "baseTimeNanoseconds": 0})
    assert [replace(s, start_ns=s.start_ns - shift) for s in moved] == still


# ---- real traces ---------------------------------------------------------------------------------


def one(path: str, step: int) -> ReferenceStep:
    return next(s for s in reference(TRACES / path) if s.step == step)


def test_published_example_dlrm() -> None:
    step = one("gpu-dlrm-2of128/rank0.json.gz", 551)
    hidden = step.total_ns["communication"] - step.exposed_ns["communication"]
    figures = (step.wall_ns, step.exposed_ns["compute"], step.total_ns["communication"], hidden)
    assert [round(x / 1e6, 2) for x in figures] == [607.36, 106.25, 195.33, 23.07]


def test_published_example_mi300() -> None:
    step = one("mi300-resnet-ddp-1of8/rank0.json.gz", 16)
    assert round(step.wall_ns / 1e6, 2) == 51.21
    assert round(100 * step.exposed_ns["communication"] / step.wall_ns, 1) == 68.5


@pytest.mark.parametrize("path", REAL, ids=lambda p: f"{p.parent.name}/{p.name.split('.')[0]}")
def test_real_traces_tile_and_add_up(path: Path) -> None:
    steps = reference(path)
    assert steps
    check_invariants(steps)
