"""Where a collective was issued tells its dimension, if only one part of torch issues it there."""

import pytest

from perfkit.pipeline.summarize import summarize_trace
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder

KERNELS = {
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(x)",
    "allreduce": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL(x)",
    "_reduce_scatter_base": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(x)",
    "recv": "ncclDevKernel_SendRecv(x)",
}
HOOK = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


@pytest.mark.parametrize(
    ("operator", "within", "dimension"),
    [
        ("broadcast", ["DistributedDataParallel.forward"], "dp"),
        ("broadcast", ["PP:1F0", "DistributedDataParallel.forward"], "dp"),
        ("broadcast", ["Optimizer.step#ZeroRedundancyOptimizer.step"], "dp"),
        ("broadcast", ["Optimizer.step#Adam.step"], None),
        ("broadcast", [], None),
        # The forward of DDP encloses the model's: its all-reduces may be tensor-parallel.
        ("allreduce", ["DistributedDataParallel.forward"], None),
        ("allreduce", ["PP:1F0"], None),
        ("recv", ["PP:1F0"], "pp"),
        ("allreduce", [HOOK], "dp"),
        ("broadcast", [HOOK], None),
        ("_allgather_base", ["FSDP::all_gather (layers.1)"], "shard"),
        ("_reduce_scatter_base", ["FSDP::post_backward_reduce"], "shard"),
        ("allreduce", ["FSDP::post_backward_reduce"], "replicate"),
        ("_allgather_base", ["PP:0B1", "FSDP::all_gather (layers.1)"], "shard"),
        ("_allgather_base", ["FullyShardedDataParallel.forward"], None),
        ("_allgather_base", ["FullyShardedDataParallel.forward", "FullyShardedDataParallel._pre_forward"], "shard"),
    ],
)
def test_dimension_by_where_it_was_issued(
    operator: str, within: list[str], dimension: str | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    trace = TraceBuilder(0, 2).step(0, 0, 100)
    for depth, name in enumerate(within):
        add = trace.op if name == HOOK else trace.annotation
        add(name, 1 + depth, 50 - 2 * depth)
    trace.record_param_comms(operator, 10, 10).launch(7, 12, 1).kernel(KERNELS[operator], 20, 10, 7)
    path = trace.write(tmp_path_factory.mktemp("trace") / "rank0.json")
    (row,) = summarize_trace(read_trace(path), path.name).collectives
    assert row.dimension == dimension
