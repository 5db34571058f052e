"""Work belongs to the modules, functions, operators and phases that it was made for."""

from pathlib import Path

import pytest

from perfkit.pipeline.summarize import summarize_trace
from perfkit.records.per_rank.work import Work, WorkView
from perfkit.records.per_rank.work_trees import Path as NodePath
from perfkit.records.per_rank.work_trees import Weights, paths_of
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder
from tests.support.traces.work_traces import AUTOGRAD_THREAD, host_step, module_step

US = 1000


def work_of(builder: TraceBuilder, folder: Path) -> Work:
    work = summarize_trace(read_trace(builder.write(folder / "trace.json")), "trace.json").work
    assert work is not None
    return work


def tree(work: Work, view: WorkView) -> dict[NodePath, Weights]:
    return paths_of(next(tree for tree in work.trees if tree.by == view))


@pytest.fixture
def work(tmp_path: Path) -> Work:
    return work_of(module_step(), tmp_path)


def test_phases(work: Work) -> None:
    assert {part.phase: (part.count, part.total_ns // US) for part in work.phases} == {
        "forward": (2, 100),
        "backward": (3, 230),
        "optimizer": (1, 50),
        "other": (1, 10),
        "unknown": (1, 5),
    }
    assert work.total_ns == 395 * US
    assert work.communication_bytes == 4096


def test_backward_belongs_to_the_module_whose_forward_caused_it(work: Work) -> None:
    nodes = tree(work, "module")
    sums = {path: (node.total_ns // US, node.forward_ns // US, node.backward_ns // US) for path, node in nodes.items()}
    assert sums == {
        ("Net_0",): (300, 100, 200),
        ("Net_0", "Block_0"): (120, 40, 80),
        ("Net_0", "Block_1"): (180, 60, 120),
        ("(optimizer)",): (50, 0, 0),
        ("(gradients)",): (30, 0, 30),
        ("(outside)",): (10, 0, 0),
        ("(unknown)",): (5, 0, 0),
    }
    assert nodes["Net_0",].self_ns == 0
    assert nodes["(gradients)",].communication_bytes == 4096


def test_instances_of_a_class_are_one_row(work: Work) -> None:
    nodes = tree(work, "class")
    assert nodes["Net", "Block"].total_ns == 300 * US
    assert nodes["Net", "Block"].counted == 4


def test_python_functions(work: Work) -> None:
    nodes = tree(work, "python")
    assert nodes["train.py(10): main", "model.py(5): forward"].total_ns == 300 * US
    assert nodes["train.py(10): main",].self_ns == 60 * US  # the copy, and the optimizer on the same stack
    assert nodes["train.py(10): main",].total_ns == 360 * US


def test_operators_with_their_kernels(work: Work) -> None:
    nodes = tree(work, "operator")
    backward = ("autograd::engine::evaluate_function: MmBackward0", "MmBackward0", "MmBackward0_kernel")
    assert nodes[backward].total_ns == 80 * US
    assert nodes["Optimizer.step#SGD.step", "aten::_foreach_add_", "_foreach_add__kernel"].total_ns == 50 * US
    assert nodes["(unknown)", "lost_kernel"].total_ns == 5 * US


def test_what_follows_the_optimizer_is_not_of_the_next_forward_pass(tmp_path: Path) -> None:
    """An operator that makes no node of the graph has the number of the next one that does, in the next step."""
    builder = TraceBuilder().step(1, 0, 1000).step(2, 1000, 1000)
    for at, number in ((10, 1), (900, 2), (1010, 2), (1030, 2)):
        builder.op("aten::add", at, 10, args={"Sequence number": number, "Fwd thread id": 0})
    for at, number in ((300, 1), (1300, 2)):
        args = {"Sequence number": number, "Fwd thread id": 1}
        builder.op("autograd::engine::evaluate_function: AddBackward0", at, 100, AUTOGRAD_THREAD, args=args)
    phases = {part.phase: part.total_ns // US for part in work_of(builder, tmp_path).phases}
    assert phases == {"forward": 30, "backward": 200, "other": 10}


@pytest.mark.parametrize("prefix", ["perfkit.pipeline.", "PP:"])
def test_micro_batches_of_a_stage_are_one_row(tmp_path: Path, prefix: str) -> None:
    builder = TraceBuilder().step(1, 0, 1000)
    for place, name in enumerate(("1F0", "1F1", "1B0", "3F0", "(1F2;3B1)OVERLAP_F_B")):
        builder.annotation(f"{prefix}{name}", 100 * place, 50).op("aten::mm", 100 * place + 10, 10)
    nodes = tree(work_of(builder, tmp_path), "operator")
    assert {path: (node.counted, node.total_ns // US) for path, node in nodes.items() if len(path) == 2} == {
        (f"{prefix}1F", "aten::mm"): (2, 20),
        (f"{prefix}1B", "aten::mm"): (1, 10),
        (f"{prefix}3F", "aten::mm"): (1, 10),
        (f"{prefix}(1F2;3B1)OVERLAP_F_B", "aten::mm"): (1, 10),
    }


def test_kernels_have_their_operator_inputs_and_launch(work: Work) -> None:
    (row,) = (row for row in work.kernels if row.name == "mm_kernel")
    assert (row.operator, row.inputs, row.count, row.total_ns) == ("aten::mm", "[[4,8]]", 1, 40 * US)
    assert (row.grid, row.occupancy_percent, row.kernel_class) == ((4, 1, 1), 50.0, "gemm")


def test_classes(work: Work) -> None:
    times = {row.kernel_class: row.total_ns // US for row in work.classes}
    assert times["communication"] == 30
    assert times["optimizer"] == 50
    assert times["copy"] == 10
    assert times["gemm"] == 40


def test_host_operators_weigh_their_self_time(tmp_path: Path) -> None:
    work = work_of(host_step(), tmp_path)
    assert (work.on, work.total_ns // US, work.exposed_ns) == ("host", 140, 0)
    nodes = tree(work, "module")
    linear = nodes["Net_0", "Linear_3"]
    assert (linear.total_ns // US, linear.forward_ns // US, linear.backward_ns // US) == (130, 40, 90)
    assert nodes["Net_0",].self_ns == 10 * US
    assert {row.kernel_class for row in work.classes} == {"gemm", "elementwise", "other"}


def test_without_sequence_numbers_backward_is_unknown_not_guessed(tmp_path: Path) -> None:
    builder = TraceBuilder().step(1, 0, 1000).python_function("nn.Module: Net_0", 10, 100)
    builder.op("autograd::engine::evaluate_function: MmBackward0", 300, 20, AUTOGRAD_THREAD)
    builder.launch(1, 305, 2, AUTOGRAD_THREAD).kernel("k", 320, 10, 1)
    nodes = tree(work_of(builder, tmp_path), "module")
    assert {path: node.backward_ns for path, node in nodes.items()} == {("(unknown)",): 10 * US}


def test_modules_that_run_again_within_backward_come_before_the_cause(tmp_path: Path) -> None:
    """Activation checkpointing computes a module again on autograd's thread."""
    builder = module_step()
    builder.op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 850, 40, AUTOGRAD_THREAD)
    builder.python_function("nn.Module: Again_0", 855, 20, tid=AUTOGRAD_THREAD)
    builder.launch(9, 860, 2, AUTOGRAD_THREAD).kernel("again", 910, 10, 9)
    assert tree(work_of(builder, tmp_path), "module")["Again_0",].backward_ns == 10 * US


def test_the_same_number_on_two_threads_of_forward(tmp_path: Path) -> None:
    """Sequence numbers count on each thread: the thread that has the most of a backward thread's numbers is meant."""
    builder = TraceBuilder().step(1, 0, 1000)
    for tid, name, numbers in ((1, "nn.Module: A_0", (5, 6, 7)), (3, "nn.Module: B_0", (6, 20, 21))):
        builder.python_function(name, 10, 100, tid=tid)
        for place, number in enumerate(numbers):
            args = {"Sequence number": number, "Fwd thread id": 0}
            builder.op("aten::mul", 20 + 10 * place, 5, tid, args=args)
    correlation = 0
    for thread, numbers, start in ((1, (7, 6, 5), 300), (2, (21, 20, 6), 400)):
        for place, number in enumerate(numbers):
            correlation += 1
            args = {"Sequence number": number, "Fwd thread id": thread}
            at = start + 20 * place
            builder.op("autograd::engine::evaluate_function: MulBackward0", at, 10, 4, args=args)
            builder.launch(correlation, at + 1, 2, 4).kernel("mul", at + 5, thread, correlation)
    nodes = tree(work_of(builder, tmp_path), "module")
    assert {path: node.backward_ns // US for path, node in nodes.items()} == {("A_0",): 3, ("B_0",): 6}


def test_without_frames_there_is_no_tree_of_modules(tmp_path: Path) -> None:
    work = work_of(TraceBuilder().step(1, 0, 100).op("aten::mm", 0, 10), tmp_path)
    assert [tree.by for tree in work.trees] == ["operator"]
    assert not work.has_modules
