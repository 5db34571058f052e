"""Idle time by function and line, from samples."""

from pathlib import Path

from perfkit.pipeline.summarize import summarize_trace
from perfkit.records.per_rank.idle import IdleTime
from perfkit.trace.reader import read_trace
from tests.support.traces.samples import Stack, header, recorded
from tests.support.traces.trace_builder import TraceBuilder

MAIN = ("train.py(1): <module>", 40, "log")
LOG: Stack = [("train.py(5): log", 8, "json.dumps"), MAIN]
DUMPS: Stack = [("json/__init__.py(183): dumps", 230), *LOG]


def cpu_step(stack: Stack, ran: int = 1000, waits: int = 0) -> TraceBuilder:
    """A step of 10 ms with an operator in its first, sampled each millisecond, and in the same function after that."""
    own: Stack = [("train.py(1): <module>", 41, "model")]
    rows = [(1000 * k, own if k < 1 else stack, ran, waits) for k in range(12)]
    builder = TraceBuilder(backend="gloo").step(1, 0, 10_000).op("aten::mm", 0, 1_000)
    return builder.header(perfkit=header(recorded(rows)))


def idle(builder: TraceBuilder, folder: Path) -> IdleTime:
    path = builder.write(folder / "rank0.json")
    return summarize_trace(read_trace(path), path.name).idle


def test_the_function_that_ran_and_its_line(tmp_path: Path) -> None:
    found = idle(cpu_step(DUMPS), tmp_path)
    (row,) = found.causes
    assert (row.cause, row.detail, row.context, row.total_ns) == (
        "host_work",
        "json/__init__.py(183): dumps",
        "train.py(5): log",
        9_000_000,
    )
    assert row.code is not None
    assert (row.code.text, row.code.call, row.code.ns) == ("log, train.py:8", "json.dumps", 9_000_000)
    assert found.has_python_frames


def test_a_function_that_waits(tmp_path: Path) -> None:
    (row,) = idle(cpu_step(LOG, ran=10, waits=2), tmp_path).causes
    assert (row.cause, row.detail) == ("not_running", "train.py(5): log")


def test_a_function_that_has_no_core_works(tmp_path: Path) -> None:
    (row,) = idle(cpu_step(LOG, ran=10, waits=0), tmp_path).causes
    assert row.cause == "host_work"


def test_with_frames_they_decide_and_samples_tell_the_line(tmp_path: Path) -> None:
    builder = cpu_step(DUMPS).python_function("train.py(5): log", 900, 9_200)
    (row,) = idle(builder, tmp_path).causes
    assert row.detail == "train.py(5): log"
    assert row.code is not None
    assert row.code.text == "log, train.py:8"


def test_the_function_is_what_ran_also_in_an_annotation(tmp_path: Path) -> None:
    (row,) = [one for one in idle(cpu_step(LOG).annotation("write", 3_000, 4_000), tmp_path).causes if one.context]
    assert (row.detail, row.context, row.total_ns) == ("train.py(5): log", "write", 4_000_000)
    assert row.code is not None
    assert row.code.line == 8


def test_without_samples_nothing_is_named(tmp_path: Path) -> None:
    builder = cpu_step(LOG).header(perfkit=None)
    (row,) = idle(builder, tmp_path).causes
    assert (row.cause, row.code) == ("unknown", None)


def test_the_breakdown_by_category_does_not_depend_on_samples(tmp_path: Path) -> None:
    steps = []
    for number, builder in enumerate((cpu_step(LOG), cpu_step(LOG).header(perfkit=None))):
        path = builder.data_loading(2_000, 1_000).write(tmp_path / f"{number}.json")
        steps.append([row.exposed_ns for row in summarize_trace(read_trace(path), path.name).steps])
    assert steps[0] == steps[1]
