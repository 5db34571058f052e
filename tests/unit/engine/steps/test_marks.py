"""Steps are found from what is there: markers on host or device, steps of the optimizer, loads."""

from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import perfkit
from perfkit.engine.trace_summary import TraceSummary
from perfkit.pipeline.summarize import Options, summarize_trace
from perfkit.records.run import RunReport
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder

US, MS = 1_000, 1_000_000
AUTOGRAD = "autograd::engine::evaluate_function: MmBackward0"
LOAD = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
MAIN_STREAM, OTHER_STREAM = 7, 20


def summary_of(builder: TraceBuilder, folder: Path, marker: str | None = None) -> TraceSummary:
    return summarize_trace(read_trace(builder.write(folder / "t.json")), "t.json", Options(step_marker=marker))


def walls_ms(summary: TraceSummary) -> list[float]:
    return [step.wall_ns / MS for step in summary.steps]


def finding(summary: TraceSummary, code: str) -> dict[str, Any] | None:
    return next((dict(one.values) for one in summary.findings if one.code == code), None)


def run_of(builder: TraceBuilder, folder: Path, marker: str | None = None) -> RunReport:
    (run,) = perfkit.analyze(builder.write(folder / "rank0.json"), step_marker=marker).runs
    return run


# ---- annotations -------------------------------------------------------------------------------------------------


def test_steps_that_only_the_device_annotates(tmp_path: Path) -> None:
    """A trace of kernels alone: four steps of 80 ms, one each 100 ms."""
    builder = TraceBuilder()
    for step in range(4):
        begin = 100_000 * step
        builder.event("gpu_user_annotation", f"ProfilerStep#{step + 3}", begin, 80_000, pid=0, tid=MAIN_STREAM)
        for k in range(8):
            builder.kernel("gemm", begin + 10_000 * k, 9_000, stream=MAIN_STREAM)
    summary = summary_of(builder, tmp_path)
    assert [step.step for step in summary.steps] == [3, 4, 5, 6]
    assert walls_ms(summary) == [100, 100, 100, 79]
    assert all(step.total_ns.compute == 72 * MS for step in summary.steps)
    assert finding(summary, "no_steps") is None
    assert finding(summary, "steps_of_device") == {}


@pytest.mark.parametrize("ahead_us", [0, 150_000])
def test_the_device_s_clock_moves_its_annotations_too(tmp_path: Path, ahead_us: int) -> None:
    builder = TraceBuilder()
    for step in range(4):
        begin = 100_000 * step
        name = f"ProfilerStep#{step + 3}"
        builder.event("gpu_user_annotation", name, begin + 20 + ahead_us, 80_000, pid=0, tid=MAIN_STREAM)
        for k in range(8):
            number = 10 * step + k + 1
            builder.launch(number, begin + 10_000 * k, 5)
            builder.kernel("gemm", begin + 10_000 * k + 20 + ahead_us, 9_000, number, stream=MAIN_STREAM)
    summary = summary_of(builder, tmp_path)
    assert [step.step for step in summary.steps] == [3, 4, 5, 6]
    assert [round(wall) for wall in walls_ms(summary)] == [100, 100, 100, 79]


def test_an_optimizer_that_steps_within_backward_ends_no_step(tmp_path: Path) -> None:
    builder = TraceBuilder(backend="gloo")
    for step, parameter in product(range(2), range(5)):
        at = 10_000 * step + 1_000 * parameter
        builder.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", at, 900)
        builder.annotation("Optimizer.step#SGD.step", at + 100, 700)
    assert len(summary_of(builder, tmp_path).steps) == 1


def marked(steps: int, *, evaluates_after: int, with_kernels: bool) -> TraceBuilder:
    """Steps of 95 ms that the program marks, one each 100 ms; after one a second of evaluation, or two."""
    builder, at, correlation = TraceBuilder(), 0, 0
    for step in range(steps):
        evaluation = step == evaluates_after
        for name, length in (("train_step", 95_000), *((("validate", 2_000_000),) if evaluation else ())):
            builder.annotation(name, at, length).op("aten::mm", at + 100, length - 5_000)
            if with_kernels:
                correlation += 1
                builder.launch(correlation, at + 200, 20).kernel("gemm", at + 1_000, length - 6_000, correlation)
            at += length + 5_000
    return builder


@pytest.mark.parametrize("with_kernels", [True, False])
def test_what_lies_between_marked_steps_is_outside_of_them(tmp_path: Path, *, with_kernels: bool) -> None:
    summary = summary_of(marked(6, evaluates_after=2, with_kernels=with_kernels), tmp_path, "train_step")
    assert walls_ms(summary) == [95] * 6
    work_ms = 89 if with_kernels else 90
    assert [step.total_ns.compute for step in summary.steps] == [work_ms * MS] * 6
    between_ms = 4 * 5 + 2_010
    assert finding(summary, "time_between_steps") == {
        "ns": between_ms * MS,
        "share": pytest.approx(between_ms / (between_ms + 6 * 95)),
    }
    assert not summary.pauses  # no name tells what it is


@pytest.mark.parametrize("with_kernels", [True, False])
def test_what_follows_the_last_marked_step_is_outside_too(tmp_path: Path, *, with_kernels: bool) -> None:
    summary = summary_of(marked(3, evaluates_after=2, with_kernels=with_kernels), tmp_path, "train_step")
    assert walls_ms(summary) == [95] * 3
    assert sum(step.total_ns.compute for step in summary.steps) == 3 * (89 if with_kernels else 90) * MS


def test_a_named_pause_between_marked_steps_keeps_its_name(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in (0, 1_000):
        builder.annotation("train_step", at, 100).op("aten::mm", at, 100)
    summary = summary_of(builder.annotation("save_checkpoint", 300, 400), tmp_path, "train_step")
    assert [step.wall_ns for step in summary.steps] == [100 * US, 100 * US]
    assert [(pause.phase, pause.step_ns) for pause in summary.pauses] == [("checkpoint", 400 * US)]
    assert finding(summary, "time_between_steps") == {"ns": 500 * US, "share": pytest.approx(500 / 1_100)}


def test_a_device_that_works_on_without_a_gap_has_none_between_its_steps(tmp_path: Path) -> None:
    """The host marks 10 us of each 50 and runs ahead of a device that is never idle."""
    builder = TraceBuilder()
    for step in range(4):
        builder.annotation("train_step", 50 * step, 10).launch(step, 50 * step, 5)
        builder.kernel("gemm", 10 + 100 * step, 100, step)
    summary = summary_of(builder, tmp_path, "train_step")
    assert [step.wall_ns for step in summary.steps] == [110 * US, 100 * US, 100 * US, 100 * US]
    assert finding(summary, "time_between_steps") is None


def test_gaps_that_would_be_printed_as_no_share_are_no_finding(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for at in (0, 1_004, 2_008):
        builder.annotation("train_step", at, 1_000).op("aten::mm", at, 1_000)
    summary = summary_of(builder, tmp_path, "train_step")
    assert [step.wall_ns for step in summary.steps] == [1_000 * US] * 3
    assert finding(summary, "time_between_steps") is None


STEP = st.lists(st.tuples(st.sampled_from([MAIN_STREAM, OTHER_STREAM]), st.integers(1, 60)), max_size=5)


@given(
    st.lists(st.tuples(st.integers(1, 60), STEP, st.integers(1, 60), st.integers(1, 90)), min_size=1, max_size=5),
    st.booleans(),
)
@settings(deadline=None)
def test_steps_by_markers_on_the_host_are_those_by_the_same_on_the_device(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, Any, int, int]], torchs: bool
) -> None:
    """Markers that last on the host from the first launch in them to the last."""
    builders = {kind: TraceBuilder() for kind in ("host", "device")}
    at, correlation, free = 0, 0, {MAIN_STREAM: 0, OTHER_STREAM: 0}
    for number, (first_us, others, last_us, gap_us) in enumerate(steps):
        name, begin = f"ProfilerStep#{number}" if torchs else "train_step", at
        spans: dict[int, tuple[int, int]] = {}
        for stream, us in [(MAIN_STREAM, first_us), *others, (MAIN_STREAM, last_us)]:
            start = max(at + 2, free[stream])
            free[stream] = start + us
            spans[stream] = spans.get(stream, (start, 0))[0], free[stream]
            for builder in builders.values():
                builder.launch(correlation, at, 1).kernel("gemm", start, us, correlation, stream)
            at, correlation = at + 3, correlation + 1
        builders["host"].annotation(name, begin, f"{at - 3 - begin}.001")
        for stream, (start, end) in spans.items():
            builders["device"].event("gpu_user_annotation", name, start, end - start, pid=0, tid=stream)
        at += gap_us
    marker, folder = None if torchs else "train", tmp_path_factory.mktemp("t")
    summaries = [summary_of(builder, folder, marker) for builder in builders.values()]
    assert [finding(summary, "steps_of_device") for summary in summaries] == [None, {}]
    host, device = (summary.steps for summary in summaries)
    assert [(s.step, s.start_ns, s.wall_ns, s.exposed_ns, s.paused_ns) for s in device] == [
        (s.step, s.start_ns, s.wall_ns, s.exposed_ns, s.paused_ns) for s in host
    ]


# ---- optimizers --------------------------------------------------------------------------------------------------


def trained(steps: int, optimizers: tuple[str, ...] = ("Adam",), *, between: bool = False) -> TraceBuilder:
    """Steps of 10 ms, after start-up of 500 ms and before an evaluation of 200 ms.

    Args:
        steps: their number.
        optimizers: those of each step.
        between: whether each has a backward pass of its own.
    """
    builder, at = TraceBuilder().op("aten::empty", 0, 500_000), 500_000
    for _ in range(steps):
        builder.op("aten::mm", at, 2_000, args={"Sequence number": 1, "Fwd thread id": 0})
        builder.op(AUTOGRAD, at + 2_000, 4_000, args={"Sequence number": 1, "Fwd thread id": 1})
        length = 4_000 // len(optimizers)
        for k, name in enumerate(optimizers):
            begin = at + 6_000 + k * length
            if between and k:
                builder.op(AUTOGRAD, begin, 10)
            builder.annotation(f"Optimizer.step#{name}.step", begin + 10, length - 10)
            builder.op("aten::_foreach_add_", begin + 10, length - 10)
        at += 10_000
    return builder.op("aten::mm", at, 200_000)


@pytest.mark.parametrize("optimizers", [("Adam",), ("Muon", "AdamW"), ("SGD", "SGD")])
@pytest.mark.parametrize("steps", [1, 30])
def test_steps_end_with_those_of_the_optimizer(tmp_path: Path, steps: int, optimizers: tuple[str, ...]) -> None:
    """Start-up and what follows belong to none; of two optimizers after one backward pass the first counts."""
    summary = summary_of(trained(steps, optimizers), tmp_path)
    assert [step.step for step in summary.steps] == list(range(steps))
    own_ms, first_ms = 10, 6 + 4 // len(optimizers)
    assert walls_ms(summary) == [first_ms, *[own_ms] * (steps - 1)]
    assert finding(summary, "no_steps") == {"marker": None, "source": "optimizer"}
    run = run_of(trained(steps, optimizers), tmp_path)
    doubt = next(one for one in run.trust if one.code == "no_steps")
    assert (doubt.what, doubt.remedy) == ("steps are those of the optimizer", "--step-marker REGEX")


def test_of_several_models_the_first_optimizer_ends_the_step(tmp_path: Path) -> None:
    summary = summary_of(trained(5, ("Adam", "SGD"), between=True), tmp_path)
    assert walls_ms(summary) == [8, 10, 10, 10, 10]


def test_optimizers_without_any_backward_pass_in_the_trace(tmp_path: Path) -> None:
    builder = TraceBuilder()
    for step in range(3):
        builder.op("aten::mm", 10 * step, 8).annotation("Optimizer.step#Adam.step", 10 * step + 8, 2)
    assert [step.wall_ns for step in summary_of(builder, tmp_path).steps] == [10 * US] * 3


def test_a_closure_is_part_of_its_step(tmp_path: Path) -> None:
    """Lightning passes forward and backward to the optimizer."""
    builder = TraceBuilder()
    for at in (0, 100, 200):
        builder.annotation("Optimizer.step#Adam.step", at, 90).op("aten::mm", at + 5, 20).op(AUTOGRAD, at + 30, 40)
    assert [step.wall_ns for step in summary_of(builder, tmp_path).steps] == [90 * US, 100 * US, 100 * US]


def test_torchs_markers_come_first(tmp_path: Path) -> None:
    builder = trained(4).step(7, 500_000, 20_000).step(8, 520_000, 20_000)
    summary = summary_of(builder, tmp_path)
    assert [(step.step, step.wall_ns // MS) for step in summary.steps] == [(7, 20), (8, 20)]
    assert finding(summary, "no_steps") is None


# ---- loads -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ends", [True, False])
def test_without_an_optimizer_each_batch_of_the_loader_is_a_step(tmp_path: Path, *, ends: bool) -> None:
    """Inference: the load that finds no batch is none, nor what comes before the first."""
    builder = TraceBuilder().op("aten::empty", 0, 300)
    for step in range(6):
        builder.annotation(LOAD, 300 + 100 * step, 10).op("aten::mm", 310 + 100 * step, 90)
    if ends:
        builder.annotation(LOAD, 900, 5)
    summary = summary_of(builder, tmp_path)
    assert [step.wall_ns for step in summary.steps] == [100 * US] * 6
    assert [step.loads.count for step in summary.steps] == [1] * 6
    assert finding(summary, "no_steps") == {"marker": None, "source": "loader"}


def test_a_trace_without_any_is_one_step(tmp_path: Path) -> None:
    summary = summary_of(TraceBuilder().op("aten::mm", 0, 10).annotation("train_step", 0, 10), tmp_path)
    assert [(step.step, step.wall_ns) for step in summary.steps] == [(None, 10 * US)]
    assert finding(summary, "no_steps") == {"marker": None, "source": "trace"}


# ---- the thread that trains --------------------------------------------------------------------------------------


def trained_on_a_device(*, marked: bool, backward: int, nodes: int, own_thread: bool = True) -> TraceBuilder:
    """Three steps of 10 ms with a pause in the main thread; autograd's thread runs the operators of backward."""
    builder, autograd = TraceBuilder(), 2 if own_thread else 1
    for step in range(3):
        at = 10_000 * step
        if marked:
            builder.step(step, at, 10_000)
        for k in range(4):
            builder.op("aten::mm", at + 100 * k, 50).launch(1000 * step + k, at + 100 * k + 10, 5)
            builder.kernel("gemm", at + 100 * k + 20, 60, 1000 * step + k)
        for k in range(backward):
            begin = at + 1_000 + 40 * k
            if k < nodes:
                builder.op(AUTOGRAD, begin, 39, tid=autograd)
            builder.op("aten::mm", begin + 1, 30, tid=autograd)
            builder.launch(1000 * step + 100 + k, begin + 2, 5, tid=autograd)
            builder.kernel("gemm", begin + 20, 15, 1000 * step + 100 + k)
        builder.annotation("save_checkpoint", at + 6_000, 2_000)
        builder.annotation("Optimizer.step#Adam.step", at + 9_000, 500)
    return builder


@pytest.mark.parametrize(
    ("marked", "nodes", "own_thread"),
    [(True, 60, True), (True, 0, True), (False, 60, True), (True, 60, False), (False, 60, False)],
)
def test_autograd_s_thread_is_not_the_one_that_trains(
    tmp_path: Path, marked: bool, nodes: int, own_thread: bool
) -> None:
    """A pause that the main thread names is one, however many more operators autograd's thread runs."""
    builder = trained_on_a_device(marked=marked, backward=60, nodes=nodes, own_thread=own_thread)
    path = builder.write(tmp_path / "t.json")
    assert len(summarize_trace(read_trace(path), path.name).pauses) == 3


def test_what_a_thread_beside_it_names_is_no_pause(tmp_path: Path) -> None:
    builder = trained_on_a_device(marked=True, backward=60, nodes=60).annotation("save_checkpoint", 500, 300, tid=2)
    path = builder.write(tmp_path / "t.json")
    assert len(summarize_trace(read_trace(path), path.name).pauses) == 3
