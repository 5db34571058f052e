"""Traces of several jobs in one folder are several runs, and the ranks and cycles of one job stay one."""

import io
import shutil
from pathlib import Path
from typing import Any

import pytest

from perfkit.errors import PerfkitError, UsageError
from perfkit.pipeline.analyze import analyze
from perfkit.pipeline.compare import compare
from perfkit.pipeline.whatif import predict
from perfkit.records.report import Report
from perfkit.report.renderers import answer, console, html, markdown
from perfkit.tools.merge.merge import merge
from perfkit.tools.stacks.collect import Selection, collect_stacks
from tests.support.reports.report_builders import make_report
from tests.support.traces.device_training import Part, train
from tests.support.traces.trace_builder import TraceBuilder

HOUR_US = 3_600 * 10**6


def trace(
    rank: int | None,
    world_size: int | None,
    *,
    at: int = 0,
    host: str | None = None,
    run: str | None = None,
    backend: str | None = "gloo",
) -> TraceBuilder:
    """Two steps of 100 us with a collective each."""
    builder = TraceBuilder(rank, world_size, backend=backend)
    for number in range(2):
        builder.step(number, at + number * 100, 100).op("aten::mm", at + number * 100, 50)
        builder.gloo("all_reduce", at + number * 100 + 50, 10)
    return builder.header(
        **({"host_name": host} if host else {}), **({"perfkit": {"rank": rank, "run": run}} if run else {})
    )


def report_of(folder: Path, **traces: TraceBuilder) -> Report:
    for name, builder in traces.items():
        builder.write(folder / f"{name}.json")
    return analyze(folder)


def groups(report: Report) -> list[list[str]]:
    """The traces of each run."""
    return [[name for rank in run.ranks for name in rank.traces] for run in report.runs]


def test_world_sizes_tell_jobs_apart(tmp_path: Path) -> None:
    report = report_of(tmp_path, a=trace(0, 1), b=trace(1, 2), c=trace(3, 8), d=trace(9, 16))
    assert groups(report) == [["a.json"], ["b.json"], ["c.json"], ["d.json"]]
    assert [run.world_size for run in report.runs] == [1, 2, 8, 16]
    finding, missing = report.findings
    assert (finding.code, finding.severity) == ("several_jobs", "warning")
    assert (missing.code, missing.severity) == ("no_scaling_series", "info")
    assert "4 jobs (world size 1, world size 2, world size 8, world size 16)" in finding.message


def test_a_comparison_says_that_jobs_of_a_folder_count_as_its_runs(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    for name, at in (("a", 0), ("b", 5 * HOUR_US)):
        for rank in range(2):
            trace(rank, 2, at=at, run=name).write(tmp_path / "before" / f"{name}{rank}.json")
    trace(0, 2).write(tmp_path / "after" / "c.json")
    found = compare(tmp_path / "before", tmp_path / "after")
    assert len(found.before.runs) == 2
    assert [one.severity for one in found.findings if one.code == "several_jobs"] == ["warning"]


def test_runs_of_perfkit_are_told_apart_by_name(tmp_path: Path) -> None:
    made = {f"{run}{rank}": trace(rank, 2, run=run, at=1000 * (run == "y")) for run in ("x", "y") for rank in range(2)}
    report = report_of(tmp_path, **made)
    assert groups(report) == [["x0.json", "x1.json"], ["y0.json", "y1.json"]]


@pytest.mark.parametrize(
    ("traces", "runs"),
    [
        # Each host has the whole job.
        ({"a0": trace(0, 2, host="a"), "a1": trace(1, 2, host="a"), "b0": trace(0, 2, host="b")}, 2),
        # One job on two hosts.
        ({"a0": trace(0, 2, host="a"), "b1": trace(1, 2, host="b")}, 1),
        # Two jobs of two hosts each: which hosts belong together is not known.
        ({f"{h}{r}": trace(r, 2, host=h) for h, r in (("a", 0), ("b", 1), ("c", 0), ("d", 1))}, 1),
        # Different ranks on one host, a day apart.
        ({"a": trace(0, 2, host="a"), "b": trace(1, 2, host="a", at=24 * HOUR_US)}, 2),
        # One rank again after a day, on hosts that are not known, without the other.
        ({"a": trace(0, 2), "b": trace(1, 2), "c": trace(0, 2, at=24 * HOUR_US)}, 2),
        # One rank on two hosts, one after the other.
        ({"a": trace(0, 1, host="a"), "b": trace(0, 1, host="b", at=1000)}, 2),
        # Cycles of one run of perfkit's, of which one file is lost.
        ({f"{r}{at}": trace(r, 2, run="x", at=at * HOUR_US) for r, at in ((0, 0), (1, 0), (0, 5))}, 1),
        # Cycles of the same ranks.
        ({"a": trace(0, 1, host="a"), "b": trace(0, 1, host="a", at=24 * HOUR_US)}, 1),
        # The clocks of two hosts may differ by any time.
        ({"a": trace(0, 2, host="a"), "b": trace(1, 2, host="b", at=24 * HOUR_US)}, 1),
        # All ranks of a job have one backend, where all are known.
        ({"a": trace(0, 2), "b": trace(1, 2, backend="nccl")}, 2),
        ({"a": trace(0, 2, backend="nccl"), "b": trace(1, 2, backend="undefined")}, 1),
        ({"a": trace(0, 3), "b": trace(1, 3, backend="nccl"), "c": trace(2, 3, backend=None)}, 1),
        # A world size that is not known differs from none.
        ({"a": trace(0, 2), "b": trace(1, None)}, 1),
    ],
)
def test_hosts_and_times(tmp_path: Path, traces: dict[str, TraceBuilder], runs: int) -> None:
    report = report_of(tmp_path, **traces)
    assert len(report.runs) == runs
    assert bool(report.findings) == (runs > 1)
    assert len({run.run for run in report.runs}) == runs


def test_traces_of_unknown_ranks_that_lie_days_apart_are_no_ranks_of_one_run(tmp_path: Path) -> None:
    day = 24 * HOUR_US
    unknown = {name: trace(None, None, at=at) for name, at in (("b", day), ("c", day + 50), ("d", 400 * day))}
    report = report_of(tmp_path, a=trace(0, None), **unknown)
    assert groups(report) == [["a.json"], ["b.json", "c.json"], ["d.json"]]


def test_clocks_of_several_hosts_do_not_tell_traces_of_unknown_ranks_apart(tmp_path: Path) -> None:
    report = report_of(tmp_path, a=trace(None, None, host="a"), b=trace(None, None, host="b", at=5 * HOUR_US))
    assert groups(report) == [["a.json", "b.json"]]


def test_jobs_that_cannot_be_told_apart_get_no_verdict(tmp_path: Path) -> None:
    report = report_of(
        tmp_path, **{f"{h}{r}": trace(r, 2, host=h) for h, r in (("a", 0), ("b", 1), ("c", 0), ("d", 1))}
    )
    (run,) = report.runs
    assert run.verdict.bound == "unknown"
    assert run.verdict.sentence.startswith("no verdict: several traces claim one rank at one time")


@pytest.mark.parametrize(("begins_us", "apart"), [(150, False), (600 * 10**6, True)])
def test_traces_of_unknown_ranks_that_were_recorded_one_after_the_other_may_be_of_several_jobs(
    begins_us: int, apart: bool, tmp_path: Path
) -> None:
    report = report_of(tmp_path, a=trace(None, None), b=trace(None, None, at=begins_us))
    assert len(report.runs) == 1
    findings = [one for one in report.runs[0].findings if one.code == "rank_unknown"]
    assert [("may be of several jobs" in one.message, one.severity) for one in findings] == [(apart, "warning")] * 2


def one_job(folder: Path, ranks: int, late: int = 0, **kwargs: Any) -> Path:
    """Write the traces of a job of which rank 1 computes for `late` us longer."""
    parts: list[Part | int] = [
        lambda device, _: device.kernels("gemm", 500 + (late if device.rank == 1 else 0), 10),
        800,
        lambda device, _: device.item(),
    ]
    return train(folder, ranks, 6, parts, **kwargs)


def together(folder: Path, *jobs: Path) -> Path:
    folder.mkdir()
    for job in jobs:
        for file in job.iterdir():
            shutil.copy(file, folder / f"{job.name}_{file.name}")
    return folder


def drawn(report: Report) -> list[str]:
    stream = io.StringIO()
    answer.write(report, stream, top=10, width=100)
    return stream.getvalue().splitlines()


def test_that_there_are_several_jobs_stands_before_what_is_said_of_them(tmp_path: Path) -> None:
    folder = together(tmp_path / "all", *(one_job(tmp_path / f"job{size}", size) for size in (1, 2, 4)))
    report = analyze(folder)
    assert [run.world_size for run in report.runs] == [1, 2, 4]
    assert drawn(report)[0].startswith("warning  several_jobs: all has the traces of 3 jobs")
    for renderer in (console, markdown, html):
        stream = io.StringIO()
        renderer.write(report, stream, top=10)
        text = " ".join(stream.getvalue().split())
        assert text.index("has the traces of 3 jobs") < text.index("Communication takes 14 %")


def test_of_ranks_of_several_jobs_nobody_is_said_to_be_late_or_not(tmp_path: Path) -> None:
    """Of each rank the trace that began first is kept: here rank 1 of one job, the others of another one."""
    first = one_job(tmp_path / "x", 4, begins={1: 500})
    second = one_job(tmp_path / "y", 4, late=500, begins=dict.fromkeys((0, 2, 3), 400))
    (run,) = analyze(together(tmp_path / "both", first, second)).runs
    assert run.verdict.sentence.startswith("no verdict")
    assert {rank.traces[0][0] for rank in run.ranks} == {"x", "y"}
    assert not any("late" in line for line in drawn(make_report(run)))


def test_nothing_is_computed_between_ranks_of_several_jobs(tmp_path: Path) -> None:
    """Nor is any rank without a trace supposed: both jobs have all of theirs."""
    first = one_job(tmp_path / "x", 2, begins={1: 500})
    second = one_job(tmp_path / "y", 2, late=500, begins={0: 400})
    folder = together(tmp_path / "both", first, second)
    (run,) = analyze(folder).runs
    assert len(run.ranks) == 2
    assert (run.cross_rank, run.efficiency, run.dimensions, run.critical_path) == (None, None, None, None)
    assert (run.pipelines, run.linked_collectives) == ([], [])
    assert {finding.code for finding in run.findings} == {
        "duplicate_rank",
        "multiple_traces_per_rank",
        "critical_path_unknown",
    }
    with pytest.raises(PerfkitError, match="traces of more than one job"):
        predict(folder, ["collective[dp]=0"])


def test_traces_of_several_jobs_are_put_together_nowhere(tmp_path: Path) -> None:
    """Neither on one timeline, as ranks that wait for each other, nor in sums of what has one rank number."""
    (tmp_path / "both").mkdir()
    for name, rank, run in (("a", 0, "x"), ("b", 1, "y"), ("c", 0, "y")):
        trace(rank, 2, run=run).write(tmp_path / "both" / f"{name}.json")
    refused = pytest.raises(UsageError, match="both has the traces of 2 jobs: put each into a separate folder")
    with refused:
        merge(tmp_path / "both", tmp_path / "merged.json")
    with refused:
        collect_stacks(tmp_path / "both", Selection())
    with refused:
        predict(tmp_path / "both", ["input=0"])
    assert not (tmp_path / "merged.json").exists()
    assert collect_stacks(tmp_path / "both" / "a.json", Selection()).ranks[0].name == "rank 0"
