"""What memory is for, in traces whose truth is known."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import perfkit
from perfkit.records.per_rank.memory import MemoryBytes
from perfkit.records.rank import MemoryUse
from tests.support.traces.memory.allocations import Allocator
from tests.support.traces.trace_builder import BASE_NS, TraceBuilder

DEVICE: dict[str, Any] = {"kind": 1, "device": 0}


def memory_of(builder: TraceBuilder, tmp_path: Path) -> MemoryUse:
    (run,) = perfkit.analyze(builder.write(tmp_path / "rank0.json"), cache=False).runs
    (use,) = run.ranks[0].memory
    assert use.at_peak is not None
    assert sum(msgspec.structs.astuple(use.at_peak)) == use.peak.allocated_bytes
    levels = list(use.curve.categories.values())
    assert [sum(at) for at in zip(*levels, strict=True)] == use.curve.allocated_bytes
    return use


def training(steps: int = 2, *, annotated: bool = True) -> TraceBuilder:
    """Steps of 100 us: data 0-10, forward 10-40, backward 40-70, optimizer 80-95."""
    builder = TraceBuilder()
    for number in range(steps):
        at = 100 * number
        builder.step(number, at, 100).data_loading(at, 10)
        if annotated:
            builder.annotation("perfkit.forward", at + 10, 30)
        builder.op("aten::linear", at + 12, 8).op("aten::empty", at + 13, 2).op("aten::gelu", at + 25, 8)
        builder.op("autograd::engine::evaluate_function: MmBackward0", at + 40, 30)
        builder.op("MmBackward0", at + 41, 20).op("aten::mm", at + 42, 10)
        builder.annotation("Optimizer.step#SGD.step", at + 80, 15).op("aten::_foreach_add_", at + 82, 5)
    return builder


def add_step(allocator: Allocator, at: int) -> None:
    """Allocate a batch, activations, workspace and gradients, and release each where a program does."""
    allocator.allocate(at + 5, 1, 10).allocate(at + 13, 2, 1_000).allocate(at + 14, 3, 70).release(at + 15, 3)
    allocator.allocate(at + 43, 4, 300).allocate(at + 45, 5, 5_000).release(at + 50, 5).release(at + 60, 2)
    allocator.allocate(at + 83, 6, 20_000).release(at + 85, 6).release(at + 97, 4).release(at + 98, 1)


@pytest.mark.parametrize("annotated", [True, False])
def test_each_category_by_who_allocated_it_and_how_long_it_lived(tmp_path: Path, annotated: bool) -> None:
    builder = training(annotated=annotated)
    allocator = Allocator(builder, 700, **DEVICE)
    add_step(allocator, 0)
    add_step(allocator, 100)
    use = memory_of(builder, tmp_path)
    assert use.at_peak == MemoryBytes(gradients=300, input=10, temporary=20_000, before=700)
    assert use.largest == MemoryBytes(gradients=300, input=10, activations=1_000, temporary=20_000, before=700)
    assert not use.tensors_noted
    (largest, *_) = use.holders
    assert (largest.operator, largest.phase, largest.bytes) == ("aten::_foreach_add_", "optimizer", 20_000)


def test_the_operator_is_the_outermost_one_within_those_of_autograd(tmp_path: Path) -> None:
    builder = training(1)
    Allocator(builder).allocate(13, 1, 50).allocate(43, 2, 9).release(96, 2).release(97, 1)
    use = memory_of(builder, tmp_path)
    found = {(row.operator, row.category, row.phase, row.count, row.bytes) for row in use.holders}
    assert found == {("aten::linear", "activations", "forward", 1, 50), ("MmBackward0", "gradients", "backward", 1, 9)}


def test_what_forward_allocates_and_keeps_is_not_called_an_activation(tmp_path: Path) -> None:
    builder = training(3)
    Allocator(builder).allocate(13, 1, 50).allocate(113, 2, 60).allocate(213, 3, 90).release(230, 3)
    use = memory_of(builder, tmp_path)
    assert use.at_peak == MemoryBytes(other=110, temporary=90)
    assert {row.category for row in use.holders} == {"other", "temporary"}


def test_an_output_that_lives_into_the_next_forward_is_one(tmp_path: Path) -> None:
    builder = training(2)
    Allocator(builder).allocate(13, 1, 50).allocate(113, 2, 60).release(115, 1)
    use = memory_of(builder, tmp_path)
    # The second one may be kept for ever: the trace ends before that can be told.
    assert use.at_peak == MemoryBytes(activations=50, other=60)


def test_the_state_of_an_optimizer_and_an_incomplete_step(tmp_path: Path) -> None:
    builder = training(2)
    Allocator(builder).allocate(83, 1, 500).allocate(143, 2, 40)
    use = memory_of(builder, tmp_path)
    assert use.at_peak == MemoryBytes(optimizer_state=500, gradients=40)


def test_buffers_of_collectives_on_the_thread_that_issues_them(tmp_path: Path) -> None:
    builder = training(1).op("c10d::allreduce_", 50, 5, tid=9).annotation("FSDP::all_gather (layers.1)", 20, 4)
    Allocator(builder).allocate(51, 1, 8, tid=9).allocate(52, 2, 90).allocate(53, 4, 3, tid=9).release(54, 4, tid=9)
    use = memory_of(builder, tmp_path)
    assert use.at_peak == MemoryBytes(gradients=90, communication=11)
    builder = training(1).annotation("FSDP::all_gather (layers.1)", 20, 4)
    Allocator(builder).allocate(21, 1, 8).release(68, 1)
    assert memory_of(builder, tmp_path).at_peak == MemoryBytes(communication=8)


NOTES: list[dict[str, Any]] = [
    {"ns": BASE_NS + 80_500, "parameters": [[100, 4_000]], "optimizer_state": [[200, 8_000]], "gradients": [[4, 300]]},
    {"ns": BASE_NS + 180_500, "gradients": [[4, 300]]},
]


def noted(device: int = 0) -> TraceBuilder:
    return training().header(perfkit={"rank": 0, "world_size": 1, "tensors": [n | {"device": device} for n in NOTES]})


def test_what_the_run_noted_was_there_before(tmp_path: Path) -> None:
    builder = noted()
    allocator = Allocator(builder, 12_700, **DEVICE)
    add_step(allocator, 0)
    allocator.allocate(144, 7, 600)  # of the backward pass, kept, and not a gradient
    add_step(allocator, 100)
    use = memory_of(builder, tmp_path)
    assert use.tensors_noted
    assert use.not_counted is None
    assert use.at_peak == MemoryBytes(
        parameters=4_000, optimizer_state=8_000, gradients=300, other=600, input=10, temporary=20_000, before=700
    )


def test_on_the_host_it_is_not_part_of_the_total(tmp_path: Path) -> None:
    builder = noted(-1)
    allocator = Allocator(builder)
    add_step(allocator, 0)
    add_step(allocator, 100)
    use = memory_of(builder, tmp_path)
    assert use.not_counted == MemoryBytes(parameters=4_000, optimizer_state=8_000)
    assert use.largest
    assert (use.largest.parameters, use.largest.gradients) == (0, 300)


def test_a_noted_block_that_is_released_leaves_its_category(tmp_path: Path) -> None:
    builder = noted()
    Allocator(builder, 12_500, **DEVICE).allocate(13, 1, 1).release(101, 100, 4_096).allocate(110, 2, 5)
    use = memory_of(builder, tmp_path)
    assert use.at_peak == MemoryBytes(parameters=4_096, optimizer_state=8_000, gradients=300, before=104, other=1)


def test_notes_that_do_not_fit_the_total_are_not_believed(tmp_path: Path) -> None:
    builder = noted()
    Allocator(builder, 900, **DEVICE).allocate(13, 1, 1)
    assert memory_of(builder, tmp_path).at_peak == MemoryBytes(other=1, before=900)


def test_missing_records_are_unknown(tmp_path: Path) -> None:
    builder = training(1)
    builder.memory(13, 50, 50, address=1).memory(14, 1_050, 0).memory(15, 1_000, -50, address=1)
    assert memory_of(builder, tmp_path).at_peak == MemoryBytes(temporary=50, unknown=1_000)


@pytest.mark.parametrize("address", [None, -1, "x", 2**70])
def test_without_addresses_there_are_no_categories(tmp_path: Path, address: object) -> None:
    builder = training(1).memory(13, 50, 50, address=address)
    (run,) = perfkit.analyze(builder.write(tmp_path / "rank0.json"), cache=False).runs
    (use,) = run.ranks[0].memory
    assert (use.at_peak, use.holders, use.curve.categories) == (None, [], {})


def test_sizes_that_no_device_has_are_not_added_up(tmp_path: Path) -> None:
    builder = training(1)
    for number in range(600):
        builder.memory(13 + number % 20, 2**53 - 1, 2**53 - 1, address=number)
    (run,) = perfkit.analyze(builder.write(tmp_path / "rank0.json"), cache=False).runs
    assert run.ranks[0].memory[0].at_peak is None


def test_a_list_that_grows_in_a_function_is_found_with_its_name(tmp_path: Path) -> None:
    builder = training(3)
    allocator = Allocator(builder)
    for number in range(3):
        at = 100 * number
        builder.python_function("train.py(7): main", at, 100).python_function("train.py(3): remember", at + 71, 9 + 2)
        builder.python_function("nn.Module: Linear_0", at + 11, 28)
        builder.op("aten::clone", at + 72, 5)
        allocator.allocate(at + 13, 50, 7).allocate(at + 73, number, 4_000_000).release(at + 90, 50)
    use = memory_of(builder, tmp_path)
    first, second = use.holders
    assert (first.category, first.operator, first.context) == ("other", "aten::clone", "train.py(3): remember")
    assert (first.count, first.bytes, first.largest_bytes, first.module) == (3, 12_000_000, 4_000_000, None)
    assert (second.context, second.module) == ("train.py(7): main", "Linear_0")
    largest, smaller = use.blocks
    assert (largest.count, largest.bytes, largest.category) == (3, 4_000_000, "other")
    assert largest.stack == ["train.py(3): remember", "train.py(7): main"]
    assert (smaller.bytes, smaller.module, smaller.phase) == (7, "Linear_0", "forward")
    assert smaller.stack == ["nn.Module: Linear_0", "train.py(7): main"]


def test_many_origins_are_cut_and_sums_stay_exact(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 10_000)
    allocator = Allocator(builder)
    for number in range(300):
        builder.op(f"op{number}", 10 * number, 5)
        allocator.allocate(10 * number + 1, number, number + 1)
    use = memory_of(builder, tmp_path)
    assert len(use.holders) == 101
    assert [(block.count, block.bytes) for block in use.blocks] == [(1, 300 - number) for number in range(20)]
    assert not any(block.stack for block in use.blocks)
    assert use.holders[-1].operator == "(others)"
    assert sum(row.bytes for row in use.holders) == use.peak.allocated_bytes
    assert sum(row.count for row in use.holders) == 300
