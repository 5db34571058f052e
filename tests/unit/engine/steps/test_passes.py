"""Forward and backward are told by autograd: its engine, its threads and its sequence numbers, operator by operator."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.engine.trace_context import TraceContext
from perfkit.pipeline.summarize import summarize_trace
from perfkit.records.per_rank.sharding import PASS_PHASES
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder

MAIN, ENGINE, PREFETCH = 1, 2, 3
US = 1000
ON_HOST, ON_DEVICE = MAIN, ENGINE
"""The thread on which the engine runs the nodes of a model on the CPU, and on a device."""


class Loop:
    """A training loop without any annotation but those of its steps and optimizers."""

    def __init__(self, engine: int = ON_HOST) -> None:
        self.builder, self.at, self._engine, self._sequence = TraceBuilder(), 0, engine, 0

    def op(self, name: str, us: int, sequence: int | None = None) -> None:
        """Run an operator of the main thread."""
        args = None if sequence is None else {"Sequence number": sequence, "Fwd thread id": 0}
        self.builder.op(name, self.at, us, args=args)
        self.at += us

    def load(self, us: int = 3) -> None:
        """Make a batch, which autograd does not see."""
        self.op("aten::normal_", us)

    def forward(self, *layers_us: int) -> list[int]:
        """Run layers, whose inner operators have no sequence number; return those of their nodes."""
        first = self._sequence + 1
        for us in layers_us:
            self._sequence += 1
            args = {"Sequence number": self._sequence, "Fwd thread id": 0}
            self.builder.op("aten::conv2d", self.at, us, args=args)
            self.builder.op("aten::convolution", self.at, us, args=args)
            self.builder.op("aten::mkldnn_convolution", self.at, us)
            self.at += us + 1
        return list(range(first, self._sequence + 1))

    def backward(self, nodes: Sequence[int], us: int) -> None:
        """Differentiate, each node in the same time, and the main thread's gradient of 1 before."""
        self.op("aten::ones_like", 1)
        for number in reversed(nodes):
            args = {"Sequence number": number, "Fwd thread id": 1}
            name = "autograd::engine::evaluate_function: ConvolutionBackward0"
            self.builder.op(name, self.at, us, self._engine, args=args)
            self.builder.op("aten::convolution_backward", self.at, us, self._engine)
            self.at += us + 1

    def step(self, name: str = "SGD") -> None:
        """Update, without gradients."""
        self.builder.annotation(f"Optimizer.step#{name}.step", self.at, 10)
        self.op("aten::_foreach_add_", 10)


def work_of(builder: TraceBuilder, folder: Path) -> dict[str, int]:
    """Return the time of each phase in us, without those that have none."""
    work = summarize_trace(read_trace(builder.write(folder / "t.json")), "t.json").work
    assert work is not None
    return {part.phase: part.total_ns // US for part in work.phases if part.total_ns}


def passes_of(builder: TraceBuilder, folder: Path) -> list[str]:
    """Return the phases of the passes in order."""
    context = TraceContext(read_trace(builder.write(folder / "t.json")), "t.json")
    return [PASS_PHASES[phase] for phase in context.passes.phase.tolist()]


LAYERS = st.lists(st.integers(1, 40), min_size=1, max_size=4)


@given(st.lists(st.tuples(LAYERS, st.integers(1, 60)), min_size=1, max_size=6), st.sampled_from([ON_HOST, ON_DEVICE]))
@settings(deadline=None)
def test_each_micro_batch_has_a_forward_and_a_backward_pass(
    tmp_path_factory: pytest.TempPathFactory, batches: list[tuple[list[int], int]], engine: int
) -> None:
    loop = Loop(engine)
    for layers_us, us in batches:
        loop.load()
        loop.backward(loop.forward(*layers_us), us)
    loop.step()
    loop.builder.step(1, 0, loop.at)
    folder = tmp_path_factory.mktemp("t")
    assert passes_of(loop.builder, folder) == ["forward", "backward"] * len(batches) + ["optimizer"]
    assert work_of(loop.builder, folder) == {
        "forward": sum(sum(layers_us) for layers_us, _ in batches),
        "backward": sum(len(layers_us) * us for layers_us, us in batches),
        "optimizer": 10,
        "other": 4 * len(batches),
    }


@pytest.mark.parametrize("engine", [ON_HOST, ON_DEVICE])
def test_the_order_of_a_gans_passes_changes_no_times(tmp_path: Path, engine: int) -> None:
    def gan(order: str) -> TraceBuilder:
        loop = Loop(engine)
        for model in order:
            layers, us = ((30, 5), 40) if model == "D" else ((70,), 90)
            loop.backward(loop.forward(*layers), us)
            loop.step(model)
        loop.builder.step(1, 0, loop.at)
        return loop.builder

    expected = {"forward": 105, "backward": 170, "optimizer": 20, "other": 2}
    for order in ("DG", "GD"):
        assert work_of(gan(order), tmp_path) == expected
        assert passes_of(gan(order), tmp_path) == ["forward", "backward", "optimizer"] * 2


@pytest.mark.parametrize("engine", [ON_HOST, ON_DEVICE])
def test_backward_passes_one_after_the_other_are_several(tmp_path: Path, engine: int) -> None:
    """What the program issues between them, as pipelines do, belongs to neither."""
    loop = Loop(engine)
    first, second = loop.forward(20), loop.forward(30)
    loop.backward(first, 40)
    loop.builder.record_param_comms("send", loop.at, 5).launch(1, loop.at, 1, MAIN)
    loop.builder.kernel("ncclDevKernel_SendRecv(x)", loop.at + 5, 50, 1)
    loop.at += 5
    loop.backward(second, 60)
    loop.builder.step(1, 0, loop.at)
    assert passes_of(loop.builder, tmp_path) == ["forward", "backward", "backward"]
    summary = summarize_trace(read_trace(loop.builder.write(tmp_path / "t.json")), "t.json")
    assert [row.phase for row in summary.issued_collectives] == [None]


def test_pipelined_micro_batches_of_a_program_that_annotates_nothing(tmp_path: Path) -> None:
    """1F1B of eight micro-batches of 4 ms forward and 8 ms backward: 32 and 64 ms."""
    loop, kernel_at = Loop(ON_DEVICE), 100
    nodes: dict[int, list[int]] = {}
    order = [("F", 0), ("F", 1)]
    for batch in range(8):
        order += [("B", batch)] + ([("F", batch + 2)] if batch < 6 else [])
    for correlation, (kind, batch) in enumerate(order):
        begin = loop.at
        if kind == "F":
            nodes[batch] = loop.forward(20)
        else:
            loop.backward(nodes[batch], 20)
            begin += 1
        loop.builder.launch(correlation, begin + 2, 2, MAIN if kind == "F" else ENGINE)
        us = 4_000 if kind == "F" else 8_000
        loop.builder.kernel("gemm", kernel_at, us, correlation)
        kernel_at += us
    loop.builder.step(1, 0, kernel_at)
    assert work_of(loop.builder, tmp_path) == {"forward": 32_000, "backward": 64_000}


def test_what_a_thread_of_the_engine_runs_outside_of_nodes_is_backward(tmp_path: Path) -> None:
    """DDP copies the last bucket in a callback of the engine, after the last node."""
    loop = Loop(ON_DEVICE)
    loop.backward(loop.forward(20), 40)
    loop.builder.op("torch.distributed.ddp.reducer::copy_bucket_to_grad", loop.at, 7, ENGINE)
    loop.builder.step(1, 0, loop.at + 10)
    assert work_of(loop.builder, tmp_path) == {"forward": 20, "backward": 47, "other": 1}


def test_what_another_thread_runs_meanwhile_is_of_no_phase(tmp_path: Path) -> None:
    """A thread that copies the next batch to the device while the engine runs."""
    loop = Loop(ON_DEVICE)
    loop.backward(loop.forward(20), 40)
    loop.builder.op("aten::copy_", 30, 9, PREFETCH).step(1, 0, loop.at)
    loop.builder.annotation("perfkit.backward", 20, 60)
    assert work_of(loop.builder, tmp_path) == {"forward": 20, "backward": 41, "other": 9}


def test_what_the_engine_computes_again_is_backward(tmp_path: Path) -> None:
    loop = Loop(ON_DEVICE)
    nodes = loop.forward(20)
    args = {"Sequence number": nodes[-1], "Fwd thread id": 1}
    loop.builder.op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 30, 50, ENGINE, args=args)
    again = {"Sequence number": 90, "Fwd thread id": 0}
    loop.builder.annotation("FSDP::pre_forward (layers.0)", 31, 30, tid=ENGINE)
    loop.builder.op("aten::mm", 35, 20, ENGINE, args=again)
    loop.builder.op(
        "autograd::engine::evaluate_function: MmBackward0", 60, 10, ENGINE, args=again | {"Fwd thread id": 2}
    )
    loop.builder.step(1, 0, 100)
    assert passes_of(loop.builder, tmp_path) == ["forward", "backward"]
    assert work_of(loop.builder, tmp_path) == {"forward": 20, "backward": 50}


def test_a_real_loop_that_accumulates_agrees_with_a_sum_over_its_file(tmp_path: Path) -> None:
    """The sum of what lies in the engine's operators on the one thread, and of all else outside of the optimizer."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(1568, 9))
    optimizer, inputs = torch.optim.SGD(model.parameters(), 0.1), torch.randn(8, 3, 16, 16)
    activities = [torch.profiler.ProfilerActivity.CPU]
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1)
    file = tmp_path / "real.json"
    with torch.profiler.profile(
        activities=activities, schedule=schedule, on_trace_ready=lambda own: own.export_chrome_trace(str(file))
    ) as profiler:
        for _ in range(4):
            for _ in range(3):
                model(inputs).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    assert Counter(passes_of_file(file)) == {"forward": 6, "backward": 6, "optimizer": 2}
    work = summarize_trace(read_trace(file), file.name).work
    assert work is not None
    found = {part.phase: part.total_ns for part in work.phases}
    engine_ns, rest_ns = sums_of(file)
    assert found["backward"] == pytest.approx(engine_ns, rel=1e-3)
    assert found["forward"] + found["other"] == pytest.approx(rest_ns, rel=1e-3)
    assert found["other"] < 0.2 * found["forward"]  # the gradient of 1 that each backward pass begins with


def passes_of_file(file: Path) -> list[str]:
    return [PASS_PHASES[k] for k in TraceContext(read_trace(file), file.name).passes.phase.tolist()]


def sums_of(file: Path) -> tuple[int, int]:
    """Return the time of operators in the engine, and of those neither in it nor in the optimizer."""
    events = [event for event in msgspec.json.decode(file.read_bytes())["traceEvents"] if event.get("ph") == "X"]
    operators = [event for event in events if event["cat"] == "cpu_op"]
    engine = [event for event in operators if event["name"].startswith("autograd::engine::evaluate_function")]
    optimizer = [event for event in events if event["name"].startswith("Optimizer.")]

    def outer(spans: list[dict[str, float]]) -> list[dict[str, float]]:
        ordered = sorted(spans, key=lambda event: (event["ts"], -event["dur"]))
        kept: list[dict[str, float]] = []
        for event in ordered:
            if not kept or event["ts"] >= kept[-1]["ts"] + kept[-1]["dur"]:
                kept.append(event)
        return kept

    def outside(event: dict[str, float]) -> bool:
        return not any(one["ts"] <= event["ts"] < one["ts"] + one["dur"] for one in (*engine, *optimizer))

    engine_us = sum(event["dur"] for event in outer(engine))
    rest_us = sum(event["dur"] for event in outer(operators) if outside(event))
    return round(engine_us * US), round(rest_us * US)
