"""Where a viewer opens a trace: at the step that the analysis calls by that number."""

from pathlib import Path

import pytest

import perfkit
from perfkit.errors import UsageError
from perfkit.tools.serve.step_window import TimeSpan, parse_time_span, step_window
from tests.support.traces.trace_builder import BASE_NS, TraceBuilder

US = 1000


def trace_of_another_loop(path: Path) -> Path:
    """Three iterations of 10 ms, and steps of the profiler that are not the loop's."""
    trace = TraceBuilder(rank=0, world_size=1, backend="gloo").step(0, 0, 14_000).step(1, 14_000, 16_000)
    for place, number in enumerate((100, 200, 300)):
        trace.annotation(f"train_batch {number}", 10_000 * place, 9_990).op("aten::mm", 10_000 * place + 10, 5000)
    return trace.write(path)


@pytest.mark.parametrize(("marker", "expected"), [(None, (14_000, 30_000)), ("train_batch", (10_000, 20_000))])
def test_it_is_the_step_of_the_analysis(tmp_path: Path, marker: str | None, expected: tuple[int, int]) -> None:
    path = trace_of_another_loop(tmp_path / "rank0.json")
    (run,) = perfkit.analyze(path, step_marker=marker).runs
    assert run.step_marker == marker
    step = run.ranks[0].steps[1]
    assert step.step == 1
    start, end = step_window(path, 1, marker)
    assert (start, end) == (expected[0] * US, expected[1] * US)
    assert step.start_ns == BASE_NS + start


def test_a_marker_may_contain_the_number(tmp_path: Path) -> None:
    path = trace_of_another_loop(tmp_path / "rank0.json")
    assert step_window(path, 200, r"train_batch (\d+)") == (10_000 * US, 20_000 * US)
    with pytest.raises(UsageError, match=r"has steps 100, 200, 300|has steps"):
        step_window(path, 1, r"train_batch (\d+)")


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("4ms-4.5ms", (18_000, 18_500)),
        ("4ms-1h", (18_000, 30_000)),  # up to the end of the last step
        ("4ms", (17_200, 18_800)),  # a tenth of the step around it
        ("0ms", (14_000, 14_800)),
        ("15999us", (29_199, 30_000)),
    ],
)
def test_a_time_of_the_step(tmp_path: Path, at: str, expected: tuple[int, int]) -> None:
    path = trace_of_another_loop(tmp_path / "rank0.json")
    start, end = step_window(path, 1, None, parse_time_span(at))
    assert (start, end) == (expected[0] * US, expected[1] * US)


def test_without_a_step_times_count_from_the_first(tmp_path: Path) -> None:
    path = trace_of_another_loop(tmp_path / "rank0.json")
    assert step_window(path, None, "train_batch", TimeSpan(12_000 * US, 13_000 * US)) == (12_000 * US, 13_000 * US)
    without_steps = TraceBuilder(rank=0, world_size=1, backend="gloo").op("aten::mm", 700, 100)
    path = without_steps.write(tmp_path / "rank1.json")
    assert step_window(path, None, None, TimeSpan(10 * US, 20 * US)) == (710 * US, 720 * US)


def test_a_device_works_for_a_step_beyond_its_end(tmp_path: Path) -> None:
    path = trace_of_another_loop(tmp_path / "rank0.json")
    start, end = step_window(path, 0, None, None)
    beyond = TimeSpan(end - start + 1_000 * US, end - start + 2_000 * US)
    assert step_window(path, 0, None, beyond) == (end + 1_000 * US, end + 2_000 * US)


def test_a_time_that_the_step_does_not_have(tmp_path: Path) -> None:
    path = trace_of_another_loop(tmp_path / "rank0.json")
    with pytest.raises(UsageError, match="--at: the recorded steps end 16ms after the start, before that"):
        step_window(path, 1, None, parse_time_span("16ms"))


@pytest.mark.parametrize("at", ["", "4", "4ms-", "-4ms", "4ms-4ms", "5ms-4ms", "4ms-5ms-6ms"])
def test_what_is_not_a_time(at: str) -> None:
    with pytest.raises(UsageError, match="--at"):
        parse_time_span(at)
