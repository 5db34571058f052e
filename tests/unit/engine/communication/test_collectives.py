"""Collectives of a trace: operator, size and exposed time."""

from pathlib import Path

import pytest

from perfkit.engine.trace_summary import TraceSummary
from perfkit.pipeline.summarize import summarize_trace
from perfkit.records.rank import CollectiveStat
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import BASE_NS, TraceBuilder, collective_args


def summary(builder: TraceBuilder, tmp_path: Path) -> TraceSummary:
    return summarize_trace(read_trace(builder.write(tmp_path / "rank0.json")), "rank0.json")


def rows(builder: TraceBuilder, tmp_path: Path) -> list[CollectiveStat]:
    return summary(builder, tmp_path).collectives


def test_a_kernel_is_described_by_what_launched_it(tmp_path: Path) -> None:
    builder = TraceBuilder(world_size=2).step(0, 0, 100)
    builder.record_param_comms("allreduce", 10, 20, in_elements=1000, out_elements=1000, dtype="BFloat16")
    builder.op("nccl:all_reduce", 11, 10).launch(7, 12, 2).kernel("ncclDevKernel_Generic(x)", 30, 40, 7)
    builder.kernel("gemm", 50, 10, 8, stream=8).launch(8, 5, 1)
    (row,) = rows(builder, tmp_path)
    assert (row.operator, row.group, row.group_size, row.bytes, row.dtype) == ("all_reduce", "0", 2, 2000, "bfloat16")
    # 30 to 70, of which the GEMM hides 50 to 60.
    assert (row.count, row.total_ns, row.exposed_ns, row.max_ns) == (1, 40_000, 30_000, 40_000)


@pytest.mark.parametrize("on_kernel", [True, False])
def test_the_number_in_the_group_is_the_kernels_or_that_of_its_issue(tmp_path: Path, on_kernel: bool) -> None:
    said = collective_args("allreduce", 8, 8, "Float", "0", "default_pg", (0, 1), None)
    builder = TraceBuilder(world_size=2).step(0, 0, 100)
    builder.op("record_param_comms", 10, 20, args=said | {"Seq": 41}).launch(7, 12, 2)
    builder.kernel("ncclDevKernel_Generic(x)", 30, 40, 7, args=said | ({"Seq": 42} if on_kernel else {}))
    assert summary(builder, tmp_path).calls.column("sequence").tolist() == [42 if on_kernel else 41]


def test_vllms_all_reduce_is_one(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).kernel("void vllm::cross_device_reduce_1stage<half, 2>(x)", 30, 5)
    assert [row.operator for row in rows(builder, tmp_path)] == ["all_reduce"]


def test_the_size_of_an_all_gather_is_its_output(tmp_path: Path) -> None:
    args = collective_args("_allgather_base", 100, 400, "Float", "1", "tp", (0, 1, 2, 3), None)
    builder = TraceBuilder().step(0, 0, 100).kernel("ncclDevKernel_AllGather_RING_LL(x)", 10, 5, 7, args=args)
    (row,) = rows(builder, tmp_path)
    assert (row.operator, row.group, row.group_size, row.bytes) == ("all_gather", "1", 4, 1600)


def test_without_metadata_the_kernel_name_counts_or_it_stays_unknown(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100)
    builder.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 10, 5).kernel("ncclDevKernel_Generic(x)", 30, 5)
    found = rows(builder, tmp_path)
    assert {(row.operator, row.bytes) for row in found} == {("all_reduce", None), ("unknown", None)}


def test_an_overlap_counts_for_the_earlier_collective(tmp_path: Path) -> None:
    builder = TraceBuilder(backend="gloo").step(0, 0, 100).op("aten::mm", 0, 1)
    builder.gloo("all_reduce", 10, 30, tid=50).gloo("broadcast", 20, 40, tid=51)
    exposed = {row.operator: (row.total_ns, row.exposed_ns) for row in rows(builder, tmp_path)}
    assert exposed == {"all_reduce": (30_000, 30_000), "broadcast": (40_000, 20_000)}


def test_sizes_recorded_by_the_session_are_joined_in_order_of_issue(tmp_path: Path) -> None:
    recorded = [
        {"ns": BASE_NS + 5000, "op": "gloo:all_reduce", "bytes": 100, "dtype": "Float", "group": "0", "group_size": 2},
        {"ns": BASE_NS + 6000, "op": "gloo:all_reduce", "bytes": 300, "dtype": "Float", "group": "0", "group_size": 2},
        {"ns": BASE_NS + 7000, "op": "gloo:broadcast", "bytes": 8, "dtype": "Long", "group": "0", "group_size": 2},
    ]
    builder = (
        TraceBuilder(backend="gloo").step(0, 0, 100).op("aten::mm", 0, 1).header(perfkit={"collectives": recorded})
    )
    # Two worker threads: the second issued is on the first thread in the file.
    builder.gloo("all_reduce", 20, 10, tid=50).gloo("all_reduce", 10, 5, tid=51).gloo("broadcast", 40, 5, tid=50)
    sizes = {(row.operator, row.bytes): row.total_ns for row in rows(builder, tmp_path)}
    assert sizes == {("all_reduce", 100): 5_000, ("all_reduce", 300): 10_000, ("broadcast", 8): 5_000}


def test_a_mismatched_record_gives_a_finding_instead_of_sizes(tmp_path: Path) -> None:
    recorded = [{"ns": BASE_NS + 5000, "op": "all_reduce", "bytes": 100}]
    builder = (
        TraceBuilder(backend="gloo").step(0, 0, 100).op("aten::mm", 0, 1).header(perfkit={"collectives": recorded})
    )
    builder.gloo("all_reduce", 10, 5).gloo("all_reduce", 20, 5)
    found = summary(builder, tmp_path)
    assert [row.bytes for row in found.collectives] == [None]
    assert "collective_sizes_unmatched" in {finding.code for finding in found.findings}


def test_unknown_sizes_are_said_of_those_operators_only_that_have_none(tmp_path: Path) -> None:
    recorded = [
        {"ns": BASE_NS + 5000, "op": "all_reduce", "bytes": 100, "dtype": "Float", "group": "0", "group_size": 2},
        {"ns": BASE_NS + 6000, "op": "broadcast", "bytes": 8, "dtype": "Long", "group": "0", "group_size": 2},
    ]
    builder = (
        TraceBuilder(backend="gloo").step(0, 0, 100).op("aten::mm", 0, 1).header(perfkit={"collectives": recorded})
    )
    builder.gloo("all_reduce", 10, 5).gloo("send", 20, 5).gloo("broadcast", 30, 5).gloo("broadcast", 40, 5)
    found = summary(builder, tmp_path)
    assert {row.operator: row.bytes for row in found.collectives} == {
        "all_reduce": 100,
        "send": None,
        "broadcast": None,
    }
    (values,) = [one.values for one in found.findings if one.code == "collective_sizes_unmatched"]
    assert values == {"unmatched": 3, "of": 4, "operators": ["broadcast", "send"]}


@pytest.mark.parametrize(
    ("operators", "recorded", "unmatched"),
    [
        (("send", "recv"), [], [["recv", "send"]]),
        (("send", "barrier"), [], [["barrier", "send"]]),
        (("send",), None, []),
    ],
)
def test_sizes_are_unknown_of_an_empty_record(
    tmp_path: Path, operators: tuple[str, ...], recorded: list[object] | None, unmatched: list[list[str]]
) -> None:
    """Of a trace that perfkit did not record, nobody promised sizes."""
    builder = (
        TraceBuilder(backend="gloo").step(0, 0, 100).op("aten::mm", 0, 1).header(perfkit={"collectives": recorded})
    )
    for place, operator in enumerate(operators):
        builder.gloo(operator, 10 + 10 * place, 5)
    found = [one.values for one in summary(builder, tmp_path).findings if one.code == "collective_sizes_unmatched"]
    assert [one["operators"] for one in found] == unmatched


def test_shapes_beside_a_gloo_span_give_its_size(tmp_path: Path) -> None:
    builder = TraceBuilder(backend="gloo").step(0, 0, 100).op("aten::mm", 0, 1)
    args = {"Input Dims": [[5, 10]], "Input type": ["float"]}
    builder.event("user_annotation", "gloo:all_reduce", 10, 5, pid=1000, tid=50, args=args)
    builder.event("user_annotation", "gloo:all_gather", 20, 5, pid=1000, tid=50, args=args)
    assert {(row.operator, row.bytes) for row in rows(builder, tmp_path)} == {("all_reduce", 200), ("all_gather", None)}


def test_collectives_outside_the_steps_are_not_counted(tmp_path: Path) -> None:
    builder = TraceBuilder(backend="gloo").step(0, 50, 100).op("aten::mm", 60, 1)
    builder.gloo("barrier", 10, 5).gloo("all_reduce", 70, 5)
    assert [row.operator for row in rows(builder, tmp_path)] == ["all_reduce"]


def test_kernels_that_one_host_event_describes_are_one_collective(tmp_path: Path) -> None:
    builder = TraceBuilder(backend="xccl").step(0, 0, 100)
    builder.record_param_comms("allreduce", 5, 20, in_elements=1000, dtype="Float")
    for number, start in enumerate((30, 50)):
        builder.launch(number, 6 + number, 1).kernel("allreduce_large_read_write_ipc", start, 10, number)
    (row,) = rows(builder, tmp_path)
    # 30 to 60 with a gap of 10 in which no kernel runs.
    assert (row.count, row.bytes, row.total_ns, row.exposed_ns) == (1, 4000, 30_000, 20_000)


def test_the_size_of_a_gather_is_what_all_ranks_have_together(tmp_path: Path) -> None:
    args = collective_args("gather", 100, 400, "Float", "0", "", (0, 1, 2, 3), None)
    builder = TraceBuilder().step(0, 0, 100).kernel("ncclDevKernel_SendRecv(x)", 10, 5, 7, args=args)
    assert [(row.operator, row.bytes) for row in rows(builder, tmp_path)] == [("gather", 1600)]


def test_dims_come_from_the_event_that_lists_only_the_input(tmp_path: Path) -> None:
    both = {"Input Dims": [[1000], [1000], [], []], "Input type": ["float", "float", "", ""]}
    one = {"Input Dims": [[1000]], "Input type": ["float"]}
    builder = TraceBuilder().step(0, 0, 100).op("c10d::alltoall_base_", 5, 20, args=both)
    builder.event("user_annotation", "nccl:all_to_all", 6, 10, pid=1000, tid=1, args=one)
    builder.launch(7, 8, 1).kernel("ncclDevKernel_SendRecv(x)", 30, 5, 7)
    assert [(row.operator, row.bytes) for row in rows(builder, tmp_path)] == [("all_to_all", 4000)]


@pytest.mark.parametrize("dims", [[[-5, 3]], [[2**62, 2**62]], ["x"], [], [[1.5]], [[[2, 3]]]])
def test_damaged_sizes_stay_unknown(tmp_path: Path, dims: list[object]) -> None:
    builder = TraceBuilder(backend="gloo").step(0, 0, 100).op("aten::mm", 0, 1)
    args = {"Input Dims": dims, "Input type": ["float"]}
    builder.event("user_annotation", "gloo:all_reduce", 10, 5, pid=1000, tid=50, args=args)
    assert [row.bytes for row in rows(builder, tmp_path)] == [None]


def test_a_scalar_has_one_element(tmp_path: Path) -> None:
    builder = TraceBuilder(backend="gloo").step(0, 0, 100).op("aten::mm", 0, 1)
    args = {"Input Dims": [[]], "Input type": ["long int"]}
    builder.event("user_annotation", "gloo:all_reduce", 10, 5, pid=1000, tid=50, args=args)
    assert [row.bytes for row in rows(builder, tmp_path)] == [8]


def test_an_instant_held_from_before_the_first_step_is_not_given_to_the_next(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 100, 300)
    builder.launch(1, 50, 1).kernel("ncclDevKernel_AllReduce_a(x)", 60, 140, 1)
    builder.launch(2, 110, 1).kernel("ncclDevKernel_AllReduce_b(x)", 150, 150, 2)
    (row,) = rows(builder, tmp_path)
    assert (row.count, row.total_ns, row.exposed_ns) == (1, 150_000, 100_000)


def test_groups_that_run_at_once_may_overtake_each_other(tmp_path: Path) -> None:
    recorded = [
        {"ns": BASE_NS + 5000 + k, "op": "gloo:all_reduce", "bytes": 100, "dtype": "Float", "group": group}
        for k, group in enumerate(["a", "a", "b"])
    ]
    builder = TraceBuilder(backend="gloo").step(0, 0, 100).op("aten::mm", 0, 1)
    builder.header(perfkit={"collectives": recorded})
    builder.gloo("all_reduce", 10, 20, tid=50).gloo("all_reduce", 15, 5, tid=60).gloo("all_reduce", 40, 5, tid=50)
    found = summary(builder, tmp_path)
    assert {row.bytes for row in found.collectives} == {None}
    assert "collective_sizes_unmatched" in {finding.code for finding in found.findings}


HOOK = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def test_buckets_of_ddp_are_known_on_a_device(tmp_path: Path) -> None:
    builder = TraceBuilder(world_size=2).step(0, 0, 200)
    for at, correlation in ((10, 1), (50, 2)):
        builder.record_param_comms("allreduce", at, 10).launch(correlation, at + 1, 1)
        builder.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", at + 5, 4, correlation)
    builder.op(HOOK, 49, 12)
    assert {row.ddp_bucket: row.count for row in rows(builder, tmp_path)} == {True: 1, False: 1}


def test_spans_on_the_cpu_are_joined_to_their_issue(tmp_path: Path) -> None:
    builder = TraceBuilder(backend="gloo").step(0, 0, 100).op("aten::mm", 0, 1)
    builder.op(HOOK, 10, 5).op("c10d::allreduce_", 11, 2)
    builder.op("c10d::allreduce_", 21, 2).op("c10d::broadcast_", 25, 2)
    builder.gloo("all_reduce", 12, 10, tid=50).gloo("all_reduce", 30, 10, tid=51).gloo("broadcast", 28, 10, tid=50)
    assert {(row.operator, row.ddp_bucket, row.count) for row in rows(builder, tmp_path)} == {
        ("all_reduce", True, 1),
        ("all_reduce", False, 1),
        ("broadcast", False, 1),
    }


def test_spans_that_outnumber_their_issues_are_joined_to_none(tmp_path: Path) -> None:
    builder = TraceBuilder(backend="gloo").step(0, 0, 100).op("aten::mm", 0, 1)
    builder.op(HOOK, 10, 5).op("c10d::allreduce_", 11, 2)
    builder.gloo("all_reduce", 5, 3).gloo("all_reduce", 12, 3)
    (row,) = rows(builder, tmp_path)
    assert (row.ddp_bucket, row.count) == (False, 2)


def test_the_thread_tells_the_group_of_what_may_have_been_overtaken(tmp_path: Path) -> None:
    issued = [(5, "a", 100), (31, "b", 900), (51, "a", 100), (52, "b", 300), (53, "b", 500)]
    recorded = [
        {"ns": BASE_NS + ns * 1000, "op": "all_reduce", "bytes": size, "dtype": "Float", "group": group, "seq": k}
        for k, (ns, group, size) in enumerate(issued)
    ]
    builder = TraceBuilder(backend="gloo").step(0, 0, 200).op("aten::mm", 0, 1)
    builder.header(perfkit={"collectives": recorded})
    # Alone in the queues: thread 50 belongs to a, 60 to b. Then b overtakes a, and its second thread appears.
    builder.gloo("all_reduce", 10, 1, tid=50).gloo("all_reduce", 40, 2, tid=60)
    builder.gloo("all_reduce", 60, 4, tid=60).gloo("all_reduce", 61, 16, tid=61).gloo("all_reduce", 70, 8, tid=50)
    found = {(row.group, row.bytes): row.total_ns for row in rows(builder, tmp_path)}
    assert found == {("a", 100): 9_000, ("b", 900): 2_000, ("b", 300): 4_000, ("b", 500): 16_000}
