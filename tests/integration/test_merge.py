"""`perfkit merge` of a recorded run, imported by Perfetto's own trace processor."""

from pathlib import Path

import pytest

from tests.support.processes.launching import PYTHON, execute, in_real_time
from tests.support.traces.trace_processor import TraceProcessor, needs_trace_processor, slices

pytestmark = needs_trace_processor


@pytest.mark.slow  # records two ranks
@pytest.mark.timing  # compares wall times
@pytest.mark.flaky(reruns=2)  # other programs on the machine change wall times
def test_an_injected_delay_is_the_others_waiting(tmp_path: Path) -> None:
    injected = ["--inject", "rank=1,phase=backward,delay=100ms", "--steps", "6"]
    command = [*in_real_time(), *PYTHON, "run", "transformer", "--preset", "tiny", "-n", "2"]
    done = execute([*command, "--trace-dir", str(tmp_path), *injected])
    assert done.returncode == 0, done.stderr
    output = tmp_path / "merged.pftrace"
    assert execute([*PYTHON, "merge", str(tmp_path), "-o", str(output)]).returncode == 0
    timeline = TraceProcessor(output)
    assert timeline.errors() == {}
    waits = slices(timeline, "name = 'waits for rank 1: all_reduce' and process = 'rank 0'")
    steps = slices(timeline, "thread = 'perfkit: step' and process = 'rank 0'")
    assert len(steps) >= 2
    for step in steps:
        begin, end = int(str(step["ts"])), int(str(step["ts"])) + int(str(step["dur"]))
        waited_ns = sum(int(str(row["dur"])) for row in waits if begin <= int(str(row["ts"])) < end)
        assert 50e6 < waited_ns < 500e6
