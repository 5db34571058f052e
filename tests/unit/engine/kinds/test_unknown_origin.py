"""What reports state about traces that lack something: named, with what would record it, and nothing else asserted."""

import io
from pathlib import Path

import pytest

import perfkit
from perfkit.records.report import Report
from perfkit.report.renderers import markdown
from tests.support.traces.memory.allocations import Allocator
from tests.support.traces.trace_builder import TraceBuilder


def analyze(builder: TraceBuilder, tmp_path: Path) -> Report:
    return perfkit.analyze(builder.write(tmp_path / "rank0.json"), cache=False)


def text_of(report: Report) -> str:
    stream = io.StringIO()
    markdown.write(report, stream, top=10)
    return stream.getvalue().replace("\\", "")


def codes(report: Report) -> dict[str, str]:
    return {finding.code: finding.message for finding in report.runs[0].findings}


def causes(report: Report) -> dict[str, int]:
    idle = report.runs[0].ranks[0].idle
    assert idle
    return {row.cause: row.total_ns for row in idle.causes}


def of_a_graph() -> TraceBuilder:
    builder = TraceBuilder().step(0, 0, 300).op("aten::mm", 5, 10).launch(1, 8, 2).kernel("gemm", 20, 30, 1)
    builder.launch(2, 60, 5, name="cudaGraphLaunch")
    for at in (70, 110, 150):
        builder.kernel("in_graph", at, 30, 2)
    return builder


def test_kernels_of_a_graph_belong_to_no_operator(tmp_path: Path) -> None:
    report = analyze(of_a_graph(), tmp_path)
    assert codes(report)["graphs_hide_operators"] == (
        "75.0 % of the device's time is work of graphs (1 launch): the trace does not contain which operator, "
        "module or line their kernels come from; steps without graphs do"
    )
    (pauses,) = [row for row in report.runs[0].ranks[0].idle.causes if row.cause == "dependency"]
    assert (pauses.detail, pauses.total_ns) == ("between the kernels of a graph", 20_000)
    assert "launches_missing" not in codes(report)


def test_a_trace_without_graphs_is_not_said_to_have_any(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 5, 10).launch(1, 8, 2).kernel("gemm", 20, 30, 1)
    assert not codes(analyze(builder, tmp_path)).keys() & {"graphs_hide_operators", "launches_missing"}


@pytest.mark.parametrize(("lost_us", "found"), [(30, True), (0.1, False)])
def test_lost_launches_are_counted_and_what_came_before_is_unknown(tmp_path: Path, lost_us: float, found: bool) -> None:
    builder = TraceBuilder().step(0, 0, 200).op("aten::mm", 5, 10).launch(1, 8, 2).kernel("gemm", 20, 30, 1)
    report = analyze(builder.kernel("gemm", 100, str(lost_us), 77), tmp_path)
    assert ("launches_missing" in codes(report)) == found
    assert causes(report)["unknown"] == 50_000
    if found:
        message = codes(report)["launches_missing"]
        assert message.startswith("1 of 2 device activities (50.0 % of their time) have no launch in the trace")


def test_device_activity_alone_has_a_finding_of_its_own(tmp_path: Path) -> None:
    report = analyze(TraceBuilder().kernel("gemm", 0, 50).kernel("gemm", 100, 50), tmp_path)
    assert "no_host_operators" in codes(report)
    assert "launches_missing" not in codes(report)
    assert causes(report) == {"unknown": 50_000}


def test_a_trace_of_the_host_without_stacks_names_no_cause_but_the_option(tmp_path: Path) -> None:
    builder = TraceBuilder(backend=None).step(0, 0, 1_000).op("aten::mm", 0, 300).op("aten::mm", 900, 100)
    report = analyze(builder, tmp_path)
    assert causes(report) == {"unknown": 600_000}
    text = text_of(report)
    for option in ("with_stack", "record_shapes", "profile_memory"):
        assert option in text
    assert "--detail why" in text
    assert "Memory" not in text


def test_what_was_recorded_is_not_asked_for(tmp_path: Path) -> None:
    builder = TraceBuilder(backend=None).step(0, 0, 1_000).op("aten::mm", 0, 300).op("aten::mm", 900, 100)
    builder.python_function("train.py(7): main", 0, 1_000).python_function("train.py(3): slow", 310, 500)
    builder.header(with_stack=1, record_shapes=1, profile_memory=1)
    Allocator(builder).allocate(10, 1, 100)
    report = analyze(builder, tmp_path)
    assert causes(report).keys() == {"host_work"}
    assert "not recorded" not in text_of(report)
    assert "(with_stack)" not in text_of(report)


@pytest.mark.parametrize(("fused_us", "found"), [(60, True), (0, False)])
def test_fused_code_has_no_operators(tmp_path: Path, fused_us: int, found: bool) -> None:
    builder = TraceBuilder(backend=None).step(0, 0, 200).op("Torch-Compiled Region: 0/0", 0, 40 + fused_us)
    builder.op("## Call CompiledFxGraph f3x ##", 0, 40 + fused_us).op("aten::mm", 0, 40)
    report = analyze(builder, tmp_path)
    assert ("compilation_hides_operators" in codes(report)) == found
    if found:
        assert codes(report)["compilation_hides_operators"].startswith(
            "60.0 % of the time of operators is fused code of torch.compile"
        )


def test_memory_without_notes_asserts_no_parameters(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 100).op("aten::mm", 5, 10)
    Allocator(builder, 5_000, kind=1, device=0).allocate(6, 1, 100)
    report = analyze(builder, tmp_path)
    at_peak = report.runs[0].ranks[0].memory[0].at_peak
    assert at_peak
    assert (at_peak.parameters, at_peak.gradients, at_peak.before, at_peak.other) == (0, 0, 5_000, 100)
    assert "parameters are not known" in text_of(report)
