"""In which phase and layer collectives are issued."""

from pathlib import Path

import pytest

from perfkit.engine.trace_summary import TraceSummary
from perfkit.pipeline.summarize import summarize_trace
from perfkit.records.aggregate import MOST_LAYER_ROWS, add_issued
from perfkit.records.per_rank.sharding import OTHER_LAYERS, ROOT_LAYER, IssuedCollectives, PassPhase
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder

AUTOGRAD = "autograd::engine::evaluate_function: AddmmBackward0"


def summary(builder: TraceBuilder, tmp_path: Path) -> TraceSummary:
    return summarize_trace(read_trace(builder.write(tmp_path / "rank0.json")), "rank0.json")


def phases(builder: TraceBuilder, tmp_path: Path) -> list[tuple[str, PassPhase | None]]:
    """Return the operator and phase of each row, by the order of the operators' names."""
    return sorted((row.operator, row.phase) for row in summary(builder, tmp_path).issued_collectives)


def issue(builder: TraceBuilder, collective: str, at: int, *, tid: int = 1) -> TraceBuilder:
    """Add the issue of a collective at 1 µs, and its kernel 100 µs later."""
    builder.record_param_comms(collective, at, 2, tid=tid).launch(at, at, 1, tid)
    return builder.kernel("ncclDevKernel_Generic(x)", at + 100, 1, at)


def cpu(at: int, operator: str = "allreduce_", kind: str = "all_reduce") -> TraceBuilder:
    builder = TraceBuilder(world_size=2, backend="gloo").step(0, 0, 1000).op("aten::mm", 1, 1)
    return builder.op(f"c10d::{operator}", at, 1).gloo(kind, at + 2, 5)


@pytest.mark.parametrize(
    ("at", "phase"), [(5, None), (15, "forward"), (25, "backward"), (35, None), (45, "optimizer"), (55, None)]
)
def test_perfkits_own_annotations(tmp_path: Path, at: int, phase: PassPhase | None) -> None:
    builder = cpu(at).annotation("perfkit.forward", 10, 10).annotation("perfkit.backward", 20, 10)
    assert phases(builder.annotation("perfkit.optimizer", 40, 10), tmp_path) == [("all_reduce", phase)]


@pytest.mark.parametrize(
    ("at", "phase"),
    [(5, None), (15, "forward"), (19, "forward"), (25, "backward"), (38, "backward"), (45, "optimizer")],
)
def test_torchs_own_names(tmp_path: Path, at: int, phase: PassPhase | None) -> None:
    """From the first to the last of a phase without another phase between is one pass: 19 and 38 lie in gaps."""
    builder = TraceBuilder(world_size=2).step(0, 0, 500)
    builder.annotation("FSDP::pre_forward (layers.0)", 10, 8).annotation("FSDP::post_forward (layers.0)", 20, 1)
    builder.op(AUTOGRAD, 22, 10, tid=2).op(AUTOGRAD, 39, 1, tid=2).annotation("Optimizer.step#Adam.step", 41, 8)
    assert phases(issue(builder, "allreduce", at), tmp_path) == [("all_reduce", phase)]


def test_what_backward_computes_again_is_backward(tmp_path: Path) -> None:
    """Activation checkpointing runs the forward of a layer, with its all-gather, within autograd."""
    builder = TraceBuilder(world_size=2).step(0, 0, 500).annotation("FSDP::pre_forward (layers.0)", 5, 2)
    builder.op(AUTOGRAD, 20, 50, tid=2).annotation("FSDP::pre_forward (layers.0)", 25, 10, tid=2)
    assert phases(issue(builder, "_allgather_base", 27, tid=2), tmp_path) == [("all_gather", "backward")]


def test_a_closure_does_not_make_all_of_the_step_the_optimizers(tmp_path: Path) -> None:
    """Lightning passes forward and backward to the optimizer."""
    builder = TraceBuilder(world_size=2).step(0, 0, 500).annotation("Optimizer.step#Adam.step", 5, 200)
    builder.annotation("DistributedDataParallel.forward", 10, 20).op(AUTOGRAD, 40, 50, tid=2)
    issue(issue(issue(builder, "broadcast", 15), "allreduce", 60, tid=2), "barrier", 150)
    assert phases(builder, tmp_path) == [("all_reduce", "backward"), ("barrier", None), ("broadcast", "forward")]


def test_layers_of_fsdp(tmp_path: Path) -> None:
    """The innermost annotation counts: while a layer's backward begins, the next layer's is gathered."""
    builder = TraceBuilder(world_size=2).step(0, 0, 500).annotation("perfkit.backward", 0, 400)
    builder.annotation("FSDP::pre_backward (layers.1)", 10, 50).annotation(
        "FSDP::backward_prefetch for layers.0", 20, 30
    )
    issue(builder.annotation("FSDP::all_gather (layers.0)", 25, 20), "_allgather_base", 30)
    issue(builder.annotation("FSDP::post_backward_reduce", 100, 20), "_reduce_scatter_base", 105)
    issue(builder, "allreduce", 200)
    rows = {row.operator: (row.dimension, row.layer) for row in summary(builder, tmp_path).issued_collectives}
    assert rows == {
        "all_gather": ("shard", "layers.0"),
        "reduce_scatter": ("shard", ROOT_LAYER),
        "all_reduce": (None, None),
    }


def test_versions_of_torch_without_layers_name_none(tmp_path: Path) -> None:
    builder = TraceBuilder(world_size=2).step(0, 0, 500).annotation("FSDP::all_gather", 10, 20)
    (row,) = summary(issue(builder, "_allgather_base", 15), tmp_path).issued_collectives
    assert (row.dimension, row.layer, row.phase) == ("shard", None, None)


@pytest.mark.parametrize(("group", "gathers"), [("mesh_tp", False), ("mesh_fsdp", True), ("default_pg", True)])
def test_activations_are_no_parameters(tmp_path: Path, group: str, *, gathers: bool) -> None:
    """What tensor parallelism gathers within a hook of FSDP is not sharded by FSDP."""
    builder = TraceBuilder(world_size=2).step(0, 0, 500).annotation("FSDP::all_gather (layers.0)", 5, 10)
    builder.record_param_comms("_allgather_base", 7, 2, group_description=group).launch(1, 7, 1)
    builder.kernel("ncclDevKernel_Generic(x)", 100, 1, 1)
    assert (summary(builder, tmp_path).sharded_parameters is not None) == gathers


def test_gloos_reduce_scatter_is_not_the_all_reduce_that_it_runs(tmp_path: Path) -> None:
    builder = TraceBuilder(world_size=2, backend="gloo").step(0, 0, 1000).op("aten::mm", 1, 1)
    builder.op("c10d::_reduce_scatter_base_", 10, 1).gloo("all_reduce", 12, 5)
    builder.op("c10d::allreduce_", 20, 1).gloo("all_reduce", 22, 7)
    rows = {row.operator: row.total_ns for row in summary(builder, tmp_path).collectives}
    assert rows == {"reduce_scatter": 5000, "all_reduce": 7000}


def test_layers_beyond_the_first_are_added_up() -> None:
    rows = [make_row(layer=f"layers.{k}", exposed_ns=k) for k in range(MOST_LAYER_ROWS + 20)]
    folded = add_issued([*rows, make_row(layer=None, exposed_ns=0)])
    assert len(folded) == MOST_LAYER_ROWS + 2
    assert sum(row.exposed_ns for row in folded) == sum(range(MOST_LAYER_ROWS + 20))
    others = next(row for row in folded if row.layer == OTHER_LAYERS)
    assert (others.count, others.exposed_ns) == (20, sum(range(20)))
    assert add_issued([*folded, *folded]) == [double(row) for row in folded]


def make_row(*, layer: str | None, exposed_ns: int) -> IssuedCollectives:
    return IssuedCollectives(
        dimension="shard",
        operator="all_gather",
        phase="forward",
        layer=layer,
        count=1,
        bytes=8,
        unsized=0,
        total_ns=1000,
        exposed_ns=exposed_ns,
    )


def double(row: IssuedCollectives) -> IssuedCollectives:
    return add_issued([row, row])[0]


def test_sizes_that_no_message_has_are_unknown_instead_of_wrapping(tmp_path: Path) -> None:
    builder = TraceBuilder(world_size=2).step(0, 0, 9_000)
    for number in range(2_400):
        builder.record_param_comms("allreduce", 2 * number, 1, in_elements=2**50, dtype="Float", sequence=number)
        builder.launch(number, f"{2 * number}.5", "0.2").kernel("ncclDevKernel_AllReduce", 5_000 + number, 1, number)
    rows = summary(builder, tmp_path).issued_collectives
    assert sum(row.count for row in rows) == 2_400
    assert [(row.bytes, row.unsized) for row in rows] == [(0, 2_400)]
