"""What a program makes a million of costs no more than events, and does not fill the report."""

import cProfile
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

import perfkit
from perfkit.engine import operators
from perfkit.pipeline import summarize as summary
from perfkit.records.rank import OTHER_NAMES
from perfkit.records.run import RunReport
from tests.support.traces.trace_builder import TraceBuilder


def run_of(builder: TraceBuilder, tmp_path: Path) -> RunReport:
    (run,) = perfkit.analyze(builder.write(tmp_path / "rank0.json"), cache=False, executor="serial").runs
    return run


def messages(run: RunReport, code: str) -> list[str]:
    return [finding.message for finding in run.findings if finding.code == code]


def test_the_first_of_too_many_steps_are_analysed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = TraceBuilder()
    for step in range(10):
        builder.step(step, step * 100, 100).op("aten::mm", step * 100, 5)
        builder.launch(step, step * 100 + 1, 1).kernel("gemm", step * 100 + 10, 20 if step != 8 else 150, step)
    whole = run_of(builder, tmp_path).ranks[0]
    monkeypatch.setattr(summary, "MOST_STEPS", 4)
    run = run_of(builder, tmp_path)
    (rank,) = run.ranks
    assert rank.steps == whole.steps[:4]
    assert sum(row.total_ns for row in rank.operators) == 4 * 20_000
    (message,) = messages(run, "steps_cut")
    assert message.startswith("of 10 steps the first 4 were analysed")
    assert "the longest is step 8" in message
    monkeypatch.setattr(summary, "MOST_STEPS", 10)
    assert not messages(run_of(builder, tmp_path), "steps_cut")


def test_names_that_are_not_listed_are_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = TraceBuilder().step(0, 0, 1000)
    for number in range(10):
        builder.kernel(f"kernel_{number}", number * 50, number + 1)
    builder.kernel("ncclDevKernel_x", 600, 1)
    monkeypatch.setattr(operators, "MOST_OPERATORS", 3)
    run = run_of(builder, tmp_path)
    rows = [(row.name, row.category, row.count, row.total_ns, row.max_ns) for row in run.ranks[0].operators]
    assert [name for name, *_ in rows] == [OTHER_NAMES, "kernel_9", "kernel_8", "kernel_7", OTHER_NAMES]
    assert (OTHER_NAMES, "compute", 7, 28_000, 7_000) in rows
    assert (OTHER_NAMES, "communication", 1, 1_000, 1_000) in rows
    (message,) = messages(run, "names_cut")
    assert message.startswith(
        "11 names of kernels and operators: the 3 with the most time are listed, the other 8 (51.8 %"
    )


def steps_only(count: int) -> Iterator[str]:
    for n in range(count):
        yield f'"user_annotation","name":"ProfilerStep#{n}","tid":1,"ts":{10 * n}.000,"dur":10.000'


def kernels(count: int, names: int) -> Iterator[str]:
    yield f'"user_annotation","name":"ProfilerStep#0","tid":1,"ts":0.000,"dur":{10 * count}.000'
    for n in range(count):
        yield f'"kernel","name":"kernel_{n % names}_of_many","tid":7,"ts":{10 * n}.000,"dur":5.000'


def threads(count: int, step: bool) -> Iterator[str]:
    for tid in range(1, count + 1):
        if step or tid == 1:
            yield f'"user_annotation","name":"ProfilerStep#0","tid":{tid},"ts":0.000,"dur":{10 * count}.000'
        yield f'"cpu_op","name":"aten::mm","tid":{tid},"ts":{10 * tid - 9}.000,"dur":5.000'


def calls(events: Iterable[str], path: Path) -> int:
    """Return how many calls of functions an analysis makes."""
    path.write_text('{"traceEvents":[' + ",\n".join(f'{{"ph":"X","pid":1,"cat":{event}}}' for event in events) + "]}")
    profiler = cProfile.Profile()
    profiler.enable()
    perfkit.analyze(path, cache=False, executor="serial")
    profiler.disable()
    return sum(row.callcount for row in profiler.getstats())


@pytest.mark.parametrize("events", [steps_only, lambda count: kernels(count, names=count)], ids=["steps", "names"])
def test_twice_as_many_steps_or_names_cost_twice_as_much(
    events: Callable[[int], Iterator[str]], tmp_path: Path
) -> None:
    least, some, many = (calls(events(count), tmp_path / "trace.json") for count in (100, 1100, 2100))
    assert many - some < 1.6 * (some - least)  # 2.7 if it grew with the square


@pytest.mark.parametrize("step", [False, True], ids=["operators", "steps"])
def test_threads_cost_hardly_more_than_their_events(tmp_path: Path, *, step: bool) -> None:
    _imports, few, many = (calls(threads(count, step), tmp_path / "trace.json") for count in (10, 100, 600))
    assert (many - few) / 500 < 150  # 510 where each thread is looked at by itself


@pytest.mark.slow
def test_a_report_of_many_steps_and_names_stays_small(tmp_path: Path) -> None:
    path, out = tmp_path / "rank0.json", tmp_path / "out.json"
    for events in (steps_only(100_000), kernels(100_000, names=100_000)):
        path.write_text('{"traceEvents":[' + ",".join(f'{{"ph":"X","pid":1,"cat":{event}}}' for event in events) + "]}")
        command = [sys.executable, "-m", "perfkit", "analyze", "--no-cache", str(path), "-o", str(out)]
        subprocess.run(command, check=True, capture_output=True, env=os.environ)
        assert out.stat().st_size < 16_000_000
