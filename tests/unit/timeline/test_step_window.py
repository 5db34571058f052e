"""Where a viewer opens a trace: at the step that the analysis calls by that number."""

from pathlib import Path

import pytest

import perfkit
from perfkit.errors import UsageError
from perfkit.timeline.step_window import step_window
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
