"""Idle time without a device by Python function, and the frames that are read for it."""

from pathlib import Path

import numpy as np
import pytest

from perfkit.engine.idle.python_stack import FrameNames
from perfkit.pipeline.summarize import summarize_trace
from perfkit.records.per_rank.idle import IdleTime
from perfkit.trace.python_frames import PythonFrameCollector
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import HOST_PID, MAIN_THREAD, TraceBuilder

MAIN = "train.py(90): main"


def idle(builder: TraceBuilder, tmp_path: Path) -> IdleTime:
    path = builder.write(tmp_path / "rank0.json")
    return summarize_trace(read_trace(path), path.name).idle


def causes(builder: TraceBuilder, tmp_path: Path) -> set[tuple[str, str, str | None, int]]:
    """Return cause, detail, context and microseconds of each row."""
    return {(row.cause, row.detail, row.context, row.total_ns // 1000) for row in idle(builder, tmp_path).causes}


def cpu_step() -> TraceBuilder:
    """A step of 10 ms with an operator at its begin, in a program of which `main` is always on the stack."""
    return TraceBuilder(backend="gloo").step(1, 0, 10_000).op("aten::mm", 0, 1_000).python_function(MAIN, -50, 20_000)


def test_what_the_program_s_innermost_function_called(tmp_path: Path) -> None:
    builder = cpu_step().python_function("train.py(5): restore", 2_000, 3_000)
    builder.python_function("torch/serialization.py(944): load", 2_100, 2_800)
    builder.python_function("<built-in method write of _io.BufferedWriter object at 0x7f01>", 2_200, 2_000)
    assert causes(builder, tmp_path) == {
        ("host_work", "torch/serialization.py(944): load", "train.py(5): restore", 2_800),
        ("host_work", "train.py(5): restore", None, 200),
        ("host_work", MAIN, None, 6_000),
    }


@pytest.mark.parametrize(
    "waiting",
    [
        "<built-in function sleep>",
        "<built-in method acquire of _thread.lock object at 0x7f03>",
        "<method 'acquire' of '_thread.lock' objects>",
        "<built-in method poll of select.poll object at 0x7f03>",
        "<method 'recv' of '_socket.socket' objects>",
    ],
)
def test_a_function_that_waits(tmp_path: Path, waiting: str) -> None:
    builder = cpu_step().python_function("train.py(5): nap", 2_000, 3_000)
    builder.python_function("threading.py(604): wait", 2_000, 2_990).python_function(waiting, 2_010, 2_970)
    found = causes(builder, tmp_path)
    assert ("not_running", "threading.py(604): wait", "train.py(5): nap", 2_970) in found
    assert sum(us for cause, _, _, us in found if cause == "not_running") == 2_970


@pytest.mark.parametrize("working", ["<built-in function collect>", "<built-in method sleepy of X object at 0x7f>"])
def test_a_function_that_does_not_wait(tmp_path: Path, working: str) -> None:
    builder = cpu_step().python_function("train.py(5): work", 2_000, 3_000).python_function(working, 2_000, 3_000)
    assert "not_running" not in {row[0] for row in causes(builder, tmp_path)}


def test_names_of_objects_are_one(tmp_path: Path) -> None:
    builder = cpu_step()
    for number in range(5):
        name = f"<built-in method dump of Pickler object at 0x7f00{number}>"
        builder.python_function(name, 2_000 + 100 * number, 50)
    rows = {row.detail: row.count for row in idle(builder, tmp_path).causes}
    assert rows["<built-in method dump of Pickler object>"] == 5


def test_an_annotation_made_by_the_innermost_function_says_more(tmp_path: Path) -> None:
    builder = cpu_step().annotation("Optimizer.step#Adam.step", 2_000, 1_000)
    builder.python_function("torch/optim/adam.py(214): step", 2_050, 900)
    outer = cpu_step().annotation("epoch", 1_500, 8_000).python_function("train.py(5): load", 2_000, 1_000)
    assert ("host_work", "Optimizer.step#Adam.step", MAIN, 1_000) in causes(builder, tmp_path)
    assert ("host_work", "train.py(5): load", "epoch", 1_000) in causes(outer, tmp_path)


@pytest.mark.parametrize("name", ["torch/profiler/profiler.py(1150): step", "perfkit/record/profile.py(90): step"])
def test_the_profiler(tmp_path: Path, name: str) -> None:
    builder = cpu_step().python_function(name, 2_000, 1_000)
    assert ("profiler", name, MAIN, 1_000) in causes(builder, tmp_path)


def test_the_program_called_by_the_profiler_is_no_profiler(tmp_path: Path) -> None:
    builder = cpu_step().python_function("perfkit/record/script/runner.py(9): run", 1_500, 7_000)
    builder.python_function("train.py(5): work", 2_000, 1_000)
    assert ("host_work", "train.py(5): work", None, 1_000) in causes(builder, tmp_path)


def test_perfkit_s_training_loop_is_the_program(tmp_path: Path) -> None:
    loop = "perfkit/record/training/trainer.py(80): train"
    builder = cpu_step().python_function(loop, 2_000, 1_000)
    assert ("host_work", loop, None, 1_000) in causes(builder, tmp_path)


def test_an_injected_delay_is_no_recording(tmp_path: Path) -> None:
    delay = "perfkit/record/injected_delay.py(6): injected_delay"
    builder = cpu_step().python_function("perfkit/record/recording/recording.py(213): phase", 1_500, 7_000)
    builder.python_function(delay, 2_000, 1_000).python_function("<built-in function sleep>", 2_000, 1_000)
    assert ("not_running", "<built-in function sleep>", delay, 1_000) in causes(builder, tmp_path)


def test_compiling(tmp_path: Path) -> None:
    builder = cpu_step().python_function("torch/_dynamo/convert_frame.py(500): __call__", 2_000, 1_000)
    builder.python_function("torch/_dynamo/symbolic_convert.py(9): run", 2_100, 800)
    assert ("compilation", "torch/_dynamo/convert_frame.py(500): __call__", MAIN, 1_000) in causes(builder, tmp_path)


def test_without_functions_and_annotations_it_is_unknown(tmp_path: Path) -> None:
    builder = TraceBuilder(backend="gloo").step(1, 0, 10_000).op("aten::mm", 0, 1_000)
    found = idle(builder, tmp_path)
    assert {row.cause for row in found.causes} == {"unknown"}
    assert not found.has_python_frames
    annotated = idle(builder.annotation("forward", 0, 2_000), tmp_path)
    assert {(row.cause, row.detail, row.total_ns) for row in annotated.causes} == {
        ("host_work", "forward", 1_000_000),
        ("unknown", found.causes[0].detail, 8_000_000),
    }


def test_functions_of_other_threads_do_not_count(tmp_path: Path) -> None:
    builder = TraceBuilder(backend="gloo").step(1, 0, 10_000).op("aten::mm", 0, 1_000)
    builder.python_function("train.py(5): log", 1_000, 9_000, tid=9).annotation("log", 1_000, 9_000, tid=9)
    assert {row.cause for row in idle(builder, tmp_path).causes} == {"unknown"}


# ---- reading -------------------------------------------------------------------------------------------------------


def test_short_frames_are_not_kept(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 0, 100)
    for number, dur in enumerate(("9.999", "10.000", None, -5, 10**16)):
        builder.event("python_function", f"f{number}", 50, dur, pid=HOST_PID, tid=MAIN_THREAD)
    path = builder.write(tmp_path / "t.json")
    frames = read_trace(path).frames
    assert frames.names == ("f1",)
    assert (frames.end_ns - frames.start_ns).tolist() == [10_000]
    assert read_trace(path, detailed=True).frames.names == ("f1",)


def test_of_too_many_frames_the_longer_are_kept(tmp_path: Path) -> None:
    class Frame:
        def __init__(self, number: int, us: int) -> None:
            self.name, self.ts, self.dur = f"f{number}", b"%d" % (100 * number), b"%d" % us

    lengths_us = [int(10 * 1.012**number) for number in range(1000)]
    collector = PythonFrameCollector(most=100)
    for batch in range(20):
        events = [Frame(number, lengths_us[number]) for number in range(50 * batch, 50 * batch + 50)]
        long_enough = collector.long_enough(events)  # type: ignore[arg-type]
        collector.add(long_enough, np.zeros(len(long_enough), np.int32))
    frames = collector.build(5, np.zeros(0, np.int64))
    lengths = frames.end_ns - frames.start_ns
    assert 0 < len(lengths) <= 100
    shortest = int(lengths.min())
    wanted = [number for number in range(1000) if lengths_us[number] * 1000 >= shortest]
    assert sorted(frames.names[name] for name in frames.name.tolist()) == sorted(f"f{number}" for number in wanted)
    assert len(frames.names) == len(set(frames.name.tolist()))
    assert frames.start_ns.min() % 1000 == 5


def test_modules_are_kept_even_when_short(tmp_path: Path) -> None:
    builder = TraceBuilder().op("aten::mm", 0, 100).python_function("train.py(1): step", 50, 9)
    builder.python_function("nn.Module: Linear_0", 50, "0.500")
    frames = read_trace(builder.write(tmp_path / "t.json")).frames
    assert frames.names == ("nn.Module: Linear_0",)


def test_of_too_many_modules_the_longer_are_kept() -> None:
    class Frame:
        def __init__(self, number: int, us: int) -> None:
            self.name, self.ts, self.dur = f"nn.Module: L_{number}", b"%d" % (100 * number), b"%d" % us

    collector = PythonFrameCollector(most=100)
    for batch in range(10):
        events = [Frame(number, int(10 * 1.012**number)) for number in range(50 * batch, 50 * batch + 50)]
        kept = collector.long_enough(events)  # type: ignore[arg-type]
        collector.add(kept, np.zeros(len(kept), np.int32))
    frames = collector.build(0, np.zeros(0, np.int64))
    assert 0 < len(frames.start_ns) <= 100
    assert int((frames.end_ns - frames.start_ns).min()) // 1000 > 1000


def test_hooks_around_calls_of_the_program_are_not_the_profiler() -> None:
    names = (
        "perfkit/record/monitor/torch_hooks.py(116): hooked",
        "perfkit/record/script/hooks/torch_hooks.py(80): hooked",
        "perfkit/record/script/recorder.py(200): _end_step",
        "perfkit/record/recording/recording.py(250): step",
        "torch/profiler/profiler.py(700): step",
    )
    assert FrameNames(names).profiler.tolist() == [False, False, True, True, True]
