"""Which operator's work and time counts, where operators nest, launch kernels, or have no model."""

from pathlib import Path

import perfkit
from perfkit.records.per_rank.operator_work import OperatorWork, RankWork
from perfkit.records.run import RunReport
from tests.support.traces.shape_traces import Launches, gpu_trace, inputs
from tests.support.traces.trace_builder import TraceBuilder

MM = inputs([2, 3], [3, 5])
MM_FLOPS = 60


def run_of(builder: TraceBuilder, folder: Path) -> RunReport:
    return perfkit.analyze(builder.write(folder / "rank0.json"), cache=False).runs[0]


def work_of(builder: TraceBuilder, folder: Path) -> RankWork:
    work = run_of(builder, folder).ranks[0].operator_work
    assert work is not None
    spent = sum(row.total_ns for row in work.operators) + sum(row.total_ns for row in work.unmodelled)
    assert spent == work.total_ns
    return work


def short(rows: list[OperatorWork]) -> list[tuple[str, int, int, int]]:
    return [(row.operator, row.count, row.total_ns, row.flops) for row in rows]


def test_the_outermost_model_counts_and_has_the_time_of_what_it_calls(tmp_path: Path) -> None:
    conv = inputs([1, 1, 4, 4], [1, 1, 3, 3], [], [], [], [], [], [], [])
    conv["Concrete Inputs"] = ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    builder = TraceBuilder(backend=None).step(0, 0, 100)
    builder.op("aten::conv2d", 0, 40, args=conv).op("aten::convolution", 5, 30, args=conv)
    builder.op("aten::_slow_conv2d_forward", 8, 20, args=conv).op(
        "aten::addmm", 10, 10, args=inputs([5], [2, 3], [3, 5])
    )
    work = work_of(builder, tmp_path)
    assert short(work.operators) == [("aten::convolution", 1, 30_000, 2 * 16 * 9)]
    assert [(row.operator, row.reason, row.total_ns) for row in work.unmodelled] == [
        ("aten::conv2d", "calls_others", 10_000)
    ]


def test_a_composite_operator_counts_only_where_it_calls_no_other_model(tmp_path: Path) -> None:
    linear = inputs([2, 3], [5, 3])
    builder = TraceBuilder(backend=None).step(0, 0, 100)
    builder.op("aten::linear", 0, 20, args=linear).op("aten::t", 1, 2).op("aten::mm", 5, 10, args=MM)
    builder.op("aten::linear", 30, 20, args=linear).op("aten::t", 31, 2)
    # The other thread's product is not within the first one's linear.
    builder.op("aten::mm", 2, 10, tid=9, args=MM)
    work = work_of(builder, tmp_path)
    assert short(work.operators) == [
        ("aten::linear", 1, 20_000, MM_FLOPS),
        ("aten::mm", 2, 20_000, 2 * MM_FLOPS),
    ]
    assert {(row.operator, row.reason) for row in work.unmodelled} == {
        ("aten::linear", "calls_others"),
        ("aten::t", "no_model"),
    }


def test_an_operator_of_unknown_shapes_leaves_the_count_to_what_it_calls(tmp_path: Path) -> None:
    builder = TraceBuilder(backend=None).step(0, 0, 100)
    builder.op("aten::_foreach_add_", 0, 20, args=inputs([], []))
    builder.op("aten::add_", 5, 10, args=inputs([4, 6], [4, 6], []))
    work = work_of(builder, tmp_path)
    assert [row.operator for row in work.operators] == ["aten::add_"]
    assert [(row.operator, row.reason) for row in work.unmodelled] == [("aten::_foreach_add_", "no_shapes")]


def test_what_loads_data_communicates_or_is_outside_of_steps_is_no_compute(tmp_path: Path) -> None:
    builder = TraceBuilder(backend="gloo").step(0, 10, 100).data_loading(20, 20)
    for start in (0, 25, 50):
        builder.op("aten::mm", start, 5, args=MM)
    builder.op("c10d::allreduce_", 70, 10, args=inputs([[8]], []))
    work = work_of(builder, tmp_path)
    assert short(work.operators) == [("aten::mm", 1, 5_000, MM_FLOPS)]
    assert work.total_ns == 5_000


def test_kernels_count_for_the_operator_around_their_launch(tmp_path: Path) -> None:
    launches = Launches(gpu_trace().step(0, 0, 1000))
    for _ in range(3):
        launches.call("aten::mm", MM, 20)
    launches.call("mine::fused", inputs([4]), 7)
    launches.call("aten::cat", None, 8)
    launches.launch(50, 9, "graph_kernel")
    work = work_of(launches.builder, tmp_path)
    assert short(work.operators) == [("aten::mm", 3, 60_000, 3 * MM_FLOPS)]
    assert [(row.operator, row.reason, row.total_ns) for row in work.unmodelled] == [
        ("graph_kernel", "no_operator", 9_000),
        ("aten::cat", "no_model", 8_000),
        ("mine::fused", "no_model", 7_000),
    ]


def test_a_call_counts_once_however_many_kernels_it_launches(tmp_path: Path) -> None:
    builder = gpu_trace().step(0, 0, 100).op("aten::mm", 1, 20, args=MM)
    for place in range(3):
        builder.launch(place + 1, 2 + 4 * place, 1).kernel("split_k", 30 + 10 * place, 10, place + 1)
    assert short(work_of(builder, tmp_path).operators) == [("aten::mm", 1, 30_000, MM_FLOPS)]


def test_modules_have_the_products_of_what_runs_in_them(tmp_path: Path) -> None:
    launches = Launches(gpu_trace().step(0, 0, 1000))
    launches.call("aten::mm", MM, 20, "cutlass_80_simt_sgemm")
    launches.call("aten::mm", MM, 30, "gemm_tf32")
    launches.call("aten::add", inputs([4], [4], []), 40)
    launches.call("aten::mm", MM, 50)
    # Net_0 has the first three of the calls, Linear_0 the second.
    launches.builder.python_function("nn.Module: Net_0", 0, 18).python_function("nn.Module: Linear_0", 6, 6)
    modules = {tuple(row.path): (row.total_ns, row.flops) for row in work_of(launches.builder, tmp_path).modules}
    assert modules["Net",] == (90_000, {"float32": MM_FLOPS, "tf32": MM_FLOPS})
    assert modules["Net", "Linear"] == (30_000, {"tf32": MM_FLOPS})
    assert modules["(outside)",] == (50_000, {"float32 or tf32": MM_FLOPS})


def test_names_of_kernels_tell_whether_float32_used_tensor_cores(tmp_path: Path) -> None:
    launches = Launches(gpu_trace().step(0, 0, 1000))
    launches.call("aten::mm", MM, 40, "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64")
    launches.call("aten::mm", MM, 30, "ampere_sgemm_128x64_nn")
    launches.call("aten::mm", MM, 20, "something_new")
    launches.call("aten::mm", inputs([2, 3], [3, 5], dtype="c10::Half"), 10, "ampere_fp16_s1688gemm")
    rows = work_of(launches.builder, tmp_path).operators
    assert [(row.dtype, row.tensor_cores) for row in rows] == [
        ("float32", True),
        ("float32", False),
        ("float32", None),
        ("float16", None),
    ]


def test_damaged_shapes_cost_their_operator_only(tmp_path: Path) -> None:
    builder = TraceBuilder(backend=None).step(0, 0, 100).op("aten::mm", 0, 5, args=MM)
    for place, dims in enumerate(([[2, 3], [4, 5]], [[2**61, 3], [3, 2**61]], "x", [[None, 3], [3, 5]], 7)):
        builder.op("aten::mm", 10 + 5 * place, 5, args={"Input Dims": dims, "Input type": ["float", "float"]})
    builder.op("aten::mm", 60, 5, args={"Input Dims": [[2, 3], [3, 5]]})
    work = work_of(builder, tmp_path)
    assert short(work.operators) == [("aten::mm", 1, 5_000, MM_FLOPS)]
    assert [(row.reason, row.count) for row in work.unmodelled] == [("no_shapes", 6)]


def test_many_shapes_are_added_up_by_kind(tmp_path: Path) -> None:
    builder = TraceBuilder(backend=None).step(0, 0, 10_000)
    for size in range(1, 301):
        builder.op("aten::mm", 10 * size, 5, args=inputs([size, 2], [2, 3]))
        builder.op(f"mine::op{size}", 10 * size + 6, 2, args=inputs([size]))
    work = work_of(builder, tmp_path)
    assert (len(work.operators), len(work.unmodelled)) == (201, 51)
    assert sum(row.flops for row in work.operators) == 12 * sum(range(1, 301))
    (others,) = [row for row in work.operators if row.operator == "(others)"]
    assert (others.kind, others.shapes, others.count) == ("gemm", "", 100)
