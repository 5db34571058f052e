"""A step that the run did not complete does not count."""

from pathlib import Path

from perfkit.pipeline.summarize import summarize_trace
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder, write


def test_a_step_beyond_the_last_completed_one_is_left_out(tmp_path: Path) -> None:
    builder = TraceBuilder().step(3, 0, 100).step(4, 100, 100).step(5, 200, 300)
    builder.launch(1, 110, 2).kernel("gemm", 150, 70, 1)  # of step 4, and runs on after it
    builder.launch(2, 210, 2).kernel("gemm", 400, 50, 2)  # of the step that never was
    builder.data_loading(230, 200)
    document = builder.to_dict()
    for steps, expected in ((None, [3, 4, 5]), ([3, 4], [3, 4])):
        document["perfkit"] = {"rank": 0, "world_size": 1, "steps": steps}
        summary = summarize_trace(read_trace(write(document, tmp_path / "rank0.json")), "rank0.json")
        assert [step.step for step in summary.steps] == expected
    last = summary.steps[-1]
    assert last.wall_ns == 120_000  # until the kernel of its own has ended, not the annotation of the next
    assert (last.total_ns.compute, last.loads.count) == (70_000, 0)
    assert not [finding for finding in summary.findings if finding.code == "work_before_steps"]
