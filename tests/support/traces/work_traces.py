"""A made trace of a GPU whose work belongs to known modules, functions and operators."""

from typing import Any

from tests.support.traces.trace_builder import HOST_PID, TraceBuilder

AUTOGRAD_THREAD = 2
GRID: dict[str, Any] = {"grid": [4, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 50}


def module_step(builder: TraceBuilder | None = None) -> TraceBuilder:
    """Return a step of 1,000 us: forward of two modules, backward on autograd's thread, optimizer, a copy.

    Device time in us: forward A 40, B 60; backward A 80, B 120; gradients 30 (an all-reduce of 4,096 bytes); optimizer
    50; a copy before all modules 10; a kernel without a launch 5.
    """
    builder = (builder or TraceBuilder(world_size=2)).step(1, 0, 1000)
    builder.python_function("train.py(10): main", 0, 1000)
    _launched(builder, "aten::copy_", 1, 5, device=(20, 10), copy=True)
    builder.python_function("model.py(5): forward", 50, 200).python_function("nn.Module: Net_0", 50, 200)
    builder.python_function("nn.Module: Block_0", 60, "5.5").python_function("nn.Module: Block_1", 160, 50)
    _launched(builder, "aten::mm", 2, 61, device=(100, 40), sequence=7)
    _launched(builder, "aten::relu", 3, 170, device=(200, 60), sequence=8)
    _backward(builder, "ReluBackward0", 4, 300, device=(310, 120), sequence=8)
    _backward(builder, "MmBackward0", 5, 440, device=(450, 80), sequence=7)
    _gradients(builder, 6, 540, device=(560, 30))
    builder.annotation("Optimizer.step#SGD.step", 700, 100)
    _launched(builder, "aten::_foreach_add_", 7, 710, device=(720, 50))
    return builder.kernel("lost_kernel", 900, 5)


def _launched(
    builder: TraceBuilder,
    operator: str,
    number: int,
    start: int,
    *,
    device: tuple[int, int],
    sequence: int | None = None,
    copy: bool = False,
) -> None:
    args = {"Input Dims": [[4, 8]], "Input type": ["float"]}
    more = {} if sequence is None else {"Sequence number": sequence, "Fwd thread id": 0}
    builder.op(operator, start, 4, args={**args, **more}).launch(number, start + 1, 2)
    if copy:
        builder.memcpy(*device, number)
    else:
        builder.kernel(f"{operator.removeprefix('aten::')}_kernel", *device, number, args=GRID)


def _backward(builder: TraceBuilder, name: str, number: int, start: int, *, device: tuple[int, int], sequence: int) -> None:
    args = {"Sequence number": sequence, "Fwd thread id": 1}
    evaluate = f"autograd::engine::evaluate_function: {name}"
    builder.op(evaluate, start, 20, AUTOGRAD_THREAD, args=args).op(name, start + 1, 15, AUTOGRAD_THREAD, args=args)
    builder.launch(number, start + 5, 2, AUTOGRAD_THREAD).kernel(f"{name}_kernel", *device, number)


def _gradients(builder: TraceBuilder, number: int, start: int, *, device: tuple[int, int]) -> None:
    evaluate = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
    builder.op(evaluate, start, 18, AUTOGRAD_THREAD)
    builder.record_param_comms("allreduce", start + 1, 10, tid=AUTOGRAD_THREAD, in_elements=1024, out_elements=1024)
    builder.launch(number, start + 3, 2, AUTOGRAD_THREAD)
    builder.kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", *device, number, stream=8)


def host_step() -> TraceBuilder:
    """Return a step without a device: operators of two modules on one thread, backward on the same."""
    builder = TraceBuilder(backend="gloo").step(1, 0, 1000).python_function("train.py(10): main", 0, 1000)
    builder.python_function("nn.Module: Net_0", 10, 200).python_function("nn.Module: Linear_3", 20, 60)
    builder.op("aten::addmm", 30, 40, args={"Sequence number": 3, "Fwd thread id": 0})
    builder.op("aten::add", 120, 10, args={"Sequence number": 4, "Fwd thread id": 0})
    args = {"Sequence number": 3, "Fwd thread id": 1}
    builder.event("cpu_op", "AddmmBackward0", 300, 90, pid=HOST_PID, tid=1, args=args)
    return builder.op("aten::mm", 310, 70)
