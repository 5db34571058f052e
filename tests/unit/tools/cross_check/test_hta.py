"""Holistic Trace Analysis and perfkit on the same traces, both for real."""

import csv
import io
import json
import os
from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
import zstandard

import perfkit
from perfkit.cli import main
from perfkit.errors import ExternalToolError, TraceError, UsageError
from perfkit.records.tools import ExternalTable
from perfkit.report import reporter
from perfkit.report.json_schema import schema
from perfkit.tools.cross_check import hta
from perfkit.tools.cross_check.hta import ANALYSES, TRACE_DIFF, rank_files, run_hta, with_cross_check
from perfkit.tools.cross_check.hta_entry import ANALYSES as CHILDS
from tests.support.json_validation import jsonschema
from tests.support.reports.report_builders import make_rank, make_run
from tests.support.traces.trace_builder import TraceBuilder

needs_hta = pytest.mark.skipif(find_spec("hta") is None, reason="HolisticTraceAnalysis is not installed (extra hta)")


def traced(rank: int = 0, steps: int = 3) -> TraceBuilder:
    """Build a rank that computes 100 µs and communicates 50 µs in each step of 1 ms, after 200 µs idle."""
    trace = TraceBuilder(rank, 2)
    for number in range(steps):
        at, first = number * 1000, number * 10 + 1
        trace.step(number, at, 1000).op("aten::mm", at + 100, 50)
        trace.launch(first, at + 110, 10).kernel("gemm", at + 200, 100, first)
        trace.launch(first + 1, at + 130, 10).kernel("ncclDevKernel_AllReduce", at + 400, 50, first + 1)
    return trace


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    traced(0).write(folder / "a.json.gz")
    data = traced(1).write(tmp_path / "rank1.json").read_bytes()
    (folder / "b.json.zst").write_bytes(zstandard.compress(data))
    return folder


def test_every_analysis_is_described() -> None:
    assert set(ANALYSES) == set(CHILDS)


@needs_hta
@pytest.mark.slow
def test_the_two_agree_where_they_mean_the_same(run_folder: Path) -> None:
    run = with_cross_check(perfkit.analyze(run_folder).runs[0])
    assert run.cross_check is not None
    assert [row.rank for row in run.cross_check.rows] == [0, 1]
    for row in run.cross_check.rows:
        assert (row.compute_ns, row.other_ns) == (row.external_compute_ns, row.external_other_ns) == (300_000, 150_000)
        assert (row.window_ns, row.external_window_ns) == (3_000_000, 2_250_000)
        assert row.idle_ns - row.external_idle_ns == 750_000  # before the first kernel, and after the last


@needs_hta
@pytest.mark.slow
def test_on_real_traces_they_agree_to_the_nanosecond(real_traces: Path) -> None:
    run = with_cross_check(perfkit.analyze(real_traces / "gpu-dlrm-2of128").runs[0])
    assert run.cross_check is not None
    for row in run.cross_check.rows:  # recorded in whole microseconds, so nothing is rounded
        assert (row.compute_ns, row.other_ns) == (row.external_compute_ns, row.external_other_ns)
        assert row.idle_ns - row.external_idle_ns == row.window_ns - row.external_window_ns > 0
        assert row.device_events == row.external_device_events
        assert row.computing_events == row.external_computing_events
        assert (row.external_synchronisations, row.external_host_events, row.rounding_ns) == (0, 0, 0)


@needs_hta
@pytest.mark.slow
def test_what_hta_counts_besides_the_device_s_work_is_known(tmp_path: Path) -> None:
    trace = traced(steps=1)
    trace.event("cpu_op", "triton_poi_fused_add_0", 600, 80, pid=1000, tid=1000, args={"stream": 0})  # as of Inductor
    trace.event("cuda_sync", "Stream Sync", 700, 20, pid=0, tid=7, args={"stream": 7, "correlation": 90})
    trace.launch(77, 650, 10).kernel("oneccl_allreduce", 800, 30, 77)
    (run,) = perfkit.analyze(trace.write(tmp_path / "rank0.json")).runs
    checked = with_cross_check(run).cross_check
    assert checked is not None
    (row,) = checked.rows
    assert (row.external_host_events, row.external_synchronisations) == (1, 1)
    assert row.device_events == row.external_device_events == 3
    assert (row.computing_events, row.external_computing_events) == (1, 2)


@needs_hta
@pytest.mark.slow
@pytest.mark.parametrize("analysis", [name for name in ANALYSES if name != TRACE_DIFF])
def test_every_analysis_runs(analysis: str, real_traces: Path) -> None:
    table = run_hta(perfkit.analyze(real_traces / "gpu-dlrm-2of128").runs[0], analysis)
    assert table.tool.startswith(("HolisticTraceAnalysis ", "traceinsight "))
    ranks = [row[table.columns.index("rank")] for row in table.rows]
    assert set(ranks) == {0, 1}
    assert {len(row) for row in table.rows} == {len(table.columns)}


def cell(table: ExternalTable, name: str, column: str) -> object:
    (row,) = [row for row in table.rows if name in row]
    return row[table.columns.index(column)]


@needs_hta
@pytest.mark.slow
def test_overlap_and_kernels_are_those_of_the_trace(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1).step(0, 0, 1000)
    for number, (name, at, length) in enumerate(
        [("gemm", 100, 100), ("gemm", 300, 200), ("ncclDevKernel_AllReduce", 400, 200)], start=1
    ):
        stream = 20 if name.startswith("nccl") else 7
        trace.launch(number, at - 50, 10).kernel(name, at, length, number, stream=stream)
    (run,) = perfkit.analyze(trace.write(tmp_path / "rank0.json")).runs
    overlap = run_hta(run, "comm-comp-overlap")
    assert overlap.rows == [[0, 50.0]]  # 100 of 200 µs of communication are beside the second product
    kernels = run_hta(run, "kernel-breakdown")
    found = [cell(kernels, "gemm", column) for column in kernels.columns if column.startswith(("sum", "max", "min"))]
    assert found == [300, 200, 100]


@needs_hta
@pytest.mark.slow
def test_two_runs_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, steps in (("before", 2), ("after", 3)):
        (tmp_path / folder).mkdir()
        traced(0, steps).write(tmp_path / folder / "rank0.json")
    before, after = str(tmp_path / "before"), str(tmp_path / "after")
    assert main(["hta", "trace-diff", before, after, "--json"]) == 0
    table = msgspec.json.decode(capsys.readouterr().out, type=ExternalTable)
    assert table.run == "before and after"
    assert [cell(table, "gemm", f"diff_{name}") for name in ("counts", "duration")] == [1, 100]
    assert main(["hta", "trace-diff", before]) == 2
    assert "1 runs with traces: give two, before and after" in capsys.readouterr().err


@needs_hta
@pytest.mark.slow
def test_a_critical_path_without_pauses_and_synchronisation_is_that_of_hta(tmp_path: Path) -> None:
    trace = TraceBuilder(world_size=1).step(0, 0, 200)
    for number in range(10):  # operators without a pause between, and a device that is busy from the first on
        trace.op("aten::mm", 20 * number, 20).launch(number + 1, 20 * number + 5, 10)
        trace.kernel("gemm", 8 + 101 * number, 100, number + 1)
    (run,) = perfkit.analyze(trace.write(tmp_path / "rank0.json")).runs
    assert run.critical_path is not None
    ours = {(row.kind, row.name): row.total_ns / 1000 for row in run.critical_path.names}
    theirs = {row[1]: row[2] for row in run_hta(run, "critical-path").rows if row[2]}
    assert ours == {
        ("host", "aten::mm"): theirs.pop("cpu_bound"),
        ("launch_bound", "from launch to start"): theirs.pop("gpu_kernel_launch_overhead"),
        ("compute", "gemm"): theirs.pop("gpu_compute_bound"),
        ("dependency", "between work of the same stream"): theirs.pop("gpu_kernel_kernel_overhead"),
    }
    assert theirs == {}


@needs_hta
@pytest.mark.slow
def test_tables_are_written_and_read_back(run_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "idle.json"
    assert main(["hta", "idle-time", str(run_folder), "-o", str(file)]) == 0
    assert capsys.readouterr().out == ""
    jsonschema.Draft202012Validator(schema("hta")).validate(json.loads(file.read_text()))
    table = msgspec.json.decode(file.read_bytes(), type=ExternalTable)
    assert table.ranks == [0, 1]
    shown = {name: io.StringIO() for name in ("csv", "rich")}
    for name, stream in shown.items():
        reporter(ExternalTable, name).write(table, stream, top=10)
    assert len(list(csv.DictReader(shown["csv"].getvalue().splitlines()))) == len(table.rows)
    assert "host_wait" in shown["rich"].getvalue()


@needs_hta
@pytest.mark.slow
def test_a_crash_of_hta_is_a_line_and_a_finding(real_traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(real_traces / "cpu-gloo-1of300")
    assert main(["hta", "temporal-breakdown", trace]) == 1
    said = capsys.readouterr().err
    assert said.startswith("perfkit: error: cpu-gloo-1of300: ")
    assert "failed in temporal-breakdown: it needs events of a device, and none are there: IndexError" in said
    assert said.count("\n") == 1
    for analysis in ("comm-comp-overlap", "kernel-breakdown"):  # for which HTA returns an empty table
        assert main(["hta", analysis, trace]) == 1
        said = capsys.readouterr().err
        assert said.endswith(f"found nothing in {analysis}: it needs events of a device, and none are there\n")
    assert main(["analyze", trace, "--cross-check", "hta", "-f", "json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert run["cross_check"] is None
    assert "cross_check_failed" in {finding["code"] for finding in run["findings"]}


@needs_hta
@pytest.mark.slow
def test_ids_that_could_be_code_are_refused(tmp_path: Path) -> None:
    trace = traced().event("cpu_op", "aten::add", 10, 5, pid=1000, tid="@pd.io.common.os.getpid()")
    run = perfkit.analyze(trace.write(tmp_path / "rank0.json")).runs[0]
    with pytest.raises(ExternalToolError, match="rank 0 has a tid that is not a plain name"):
        run_hta(run, "critical-path")


def test_without_hta_it_is_said_how_to_get_it(
    run_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hta, "find_spec", lambda _: None)
    for arguments in (["hta", "idle-time", str(run_folder)], ["analyze", str(run_folder), "--cross-check", "hta"]):
        assert main(arguments) == 1
        said = capsys.readouterr().err
        assert said.startswith(
            "perfkit: error: Holistic Trace Analysis is not installed: pip install 'perfkit[hta]', or"
        )


@pytest.mark.timeout(60)  # what reads a pipe a second time waits for ever
def test_a_pipe_which_is_read_only_once_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(hta, "find_spec", lambda _: True)
    os.mkfifo(tmp_path / "pipe")
    pipe = str(tmp_path / "pipe")
    for arguments in (["hta", "idle-time", pipe], ["analyze", pipe, "--cross-check", "hta"]):
        assert main(arguments) == 1
        said = capsys.readouterr().err
        assert f"{pipe}: is a pipe, and " in said
        assert "reads a trace more than once: write it to a file first" in said
        assert said.count("\n") == 1
    with pytest.raises(TraceError, match="is a pipe"):
        run_hta(make_run(ranks=[make_rank(0, traces=["pipe"])], path=str(tmp_path)), "idle-time")


def test_traces_are_given_by_rank(tmp_path: Path) -> None:
    ranks = [make_rank(1, traces=["b.json.gz"]), make_rank(0, traces=["a.json"])]
    run = make_run(ranks=ranks, path=str(tmp_path))
    assert rank_files(run) == {0: tmp_path / "a.json", 1: tmp_path / "b.json.gz"}
    alone = make_run(ranks=[make_rank(None, traces=["x.json"])], path=str(tmp_path / "x.json"))
    assert rank_files(alone) == {0: tmp_path / "x.json"}
    cycles = make_rank(0, traces=["a.cycle0.json.gz", "a.cycle1.json.gz"])
    with pytest.raises(UsageError, match=r"rank 0 has 2 traces.*such as a\.cycle0\.json\.gz"):
        rank_files(make_run(ranks=[cycles]))
    with pytest.raises(UsageError, match="rank of its traces is unknown"):
        rank_files(make_run(ranks=[make_rank(None), make_rank(None)]))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["idle-time", "x", "--step", "3"], "--step applies to critical-path only"),
        (["idle-time", "x", "-o", "x.md"], "unknown output format"),
        (["idle", "x"], "'idle' is not one of"),
    ],
)
def test_usage_errors_are_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hta", *arguments]) == 2
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.err.count("\n") == 1
