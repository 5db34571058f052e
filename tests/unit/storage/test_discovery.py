"""Discovery of runs: unique names, since results of several runs are keyed by name."""

import gzip
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest

import perfkit
from perfkit.cli import main
from perfkit.errors import TraceError
from perfkit.report.renderers import html
from perfkit.storage.discovery import find_runs
from tests.support.processes.launching import LIMIT_S
from tests.support.processes.waiting import MOST_S
from tests.support.reports.histories import make_history
from tests.support.traces.trace_builder import TraceBuilder
from tests.unit.report.test_html import read


def names(*paths: Path) -> list[str]:
    return [run.name for run in find_runs(paths)]


def make_runs(root: Path, *folders: str) -> None:
    for folder in folders:
        (root / folder).mkdir(parents=True)
        (root / folder / "rank0.json").touch()


def test_as_many_folders_stand_before_a_name_as_tell_it_from_the_others(tmp_path: Path) -> None:
    make_runs(tmp_path, "feb/sweep/x", "jan/sweep/x", "jan/sweep/y", "mar/other/x")
    assert names(tmp_path) == ["feb/sweep/x", "jan/sweep/x", "y", "other/x"]


def test_a_name_within_another_goes_on_to_where_they_differ(tmp_path: Path) -> None:
    make_runs(tmp_path, "a/x", "b/a/x")
    assert names(tmp_path) == [f"{tmp_path.name}/a/x", "b/a/x"]


def test_a_trace_beside_a_folder_of_its_name_has_a_number(tmp_path: Path) -> None:
    make_runs(tmp_path, "x", "x#2", "there/x")
    (tmp_path / "x.json").touch()
    paths = [tmp_path / name for name in ("x", "x.json", "x#2", "there")]
    assert names(*paths) == [f"{tmp_path.name}/x", "x#2", "there/x", "x#3"]


def test_what_ranks_leave_of_a_hang_is_no_trace(tmp_path: Path) -> None:
    make_runs(tmp_path, "x")
    for name in ("hang.json", "rank0.hang.json"):
        (tmp_path / "x" / name).write_text("{}")
    (run,) = find_runs([tmp_path])
    assert [trace.name for trace in run.traces] == ["rank0.json"]


def test_sweeps_of_the_same_points_are_one_history_with_a_level_before_and_after(tmp_path: Path) -> None:
    for number, ms in enumerate((10, 12)):
        steps = [ms + 0.1 * (day % 3) for day in range(8)]
        make_history(tmp_path / f"month-{number}" / "sweep", steps, first_day=30 * number)
    stream = io.StringIO()
    html.write(perfkit.history(tmp_path), stream, top=20)
    chart = json.loads(read(stream.getvalue()).data[0])
    assert [(line["x0"], line["x1"]) for line in chart["layout"]["shapes"]] == [(-0.4, 7.4), (7.6, 15.4)]
    assert len(set(chart["data"][0]["customdata"])) == 16


def make_folder_with_pipes(folder: Path) -> Path:
    """A trace, a pipe that nobody writes to, a link to it, and a device; pipes also where perfkit's own files go."""
    folder.mkdir(parents=True)
    TraceBuilder(0, 1).step(0, 0, 100).op("aten::mm", 0, 50).write(folder / "rank0.json.gz")
    for name in ("control.json", "sweep.json", "failure.json"):
        os.mkfifo(folder / name)
    (folder / "link.json").symlink_to("control.json")
    (folder / "null.json").symlink_to(os.devnull)
    (folder / "gone.json").symlink_to("nowhere")
    return folder


@pytest.mark.parametrize("manifest", [False, True])
def test_what_is_no_file_is_passed_over_and_named(tmp_path: Path, *, manifest: bool) -> None:
    folder = make_folder_with_pipes(tmp_path / "x" / "run")
    if manifest:
        os.mkfifo(folder / "run.json")
    (run,) = perfkit.analyze(tmp_path / "x").runs
    assert [rank.rank for rank in run.ranks] == [0]
    (finding,) = [finding for finding in run.findings if finding.code == "not_a_regular_file"]
    assert (finding.severity, finding.file) == ("info", "control.json")
    assert finding.message.startswith("control.json, gone.json, link.json, null.json are not regular files and were")
    assert manifest == any("it is not a regular file" in finding.message for finding in run.findings)


@pytest.mark.parametrize(
    ("command", "code"), [(["merge", "x", "-o", "m.json"], 0), (["compare", "x", "x"], 0), (["history", "x"], 1)]
)
def test_no_command_waits_for_a_pipe(tmp_path: Path, command: list[str], code: int) -> None:
    make_folder_with_pipes(tmp_path / "x")
    called = [sys.executable, "-m", "perfkit", *command]
    done = subprocess.run(called, cwd=tmp_path, timeout=LIMIT_S, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, False), done.stderr


def test_a_folder_of_pipes_alone_is_an_error_that_names_one(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "control.json")
    with pytest.raises(TraceError, match=r"no trace .*\(control\.json is a link or a pipe, which"):
        perfkit.analyze(tmp_path)


@contextmanager
def written(pipe: Path, content: bytes) -> Iterator[None]:
    writer = Thread(target=pipe.write_bytes, args=(content,), daemon=True)
    writer.start()
    yield
    writer.join(MOST_S)


def test_a_pipe_that_is_named_is_read(tmp_path: Path) -> None:
    folder = make_folder_with_pipes(tmp_path / "x")
    with written(folder / "control.json", (folder / "rank0.json.gz").read_bytes()):
        (run,) = perfkit.analyze(folder / "control.json").runs
    assert [(rank.rank, len(rank.steps)) for rank in run.ranks] == [(0, 1)]


def test_what_is_damaged_is_read_from_a_pipe_as_far_as_it_goes(tmp_path: Path) -> None:
    events = [{"ph": "X", "cat": "cpu_op", "name": f"op {n}", "ts": n * 10, "dur": 5} for n in range(20_000)]
    os.mkfifo(tmp_path / "pipe.json")
    whole = gzip.compress(json.dumps({"traceEvents": events}).encode())
    with written(tmp_path / "pipe.json", whole[: len(whole) * 3 // 4]):
        (run,) = perfkit.analyze(tmp_path / "pipe.json").runs
    assert "damaged gzip data: it ends too soon" in str([finding.message for finding in run.findings])


@pytest.mark.timeout(MOST_S)
def test_a_pipe_that_nobody_writes_to_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perfkit.base.regular_file._WRITER_S", 0.2)
    os.mkfifo(tmp_path / "pipe.json")
    threads = threading.active_count()
    with pytest.raises(TraceError, match="cannot be read: it is a pipe, and no process has opened it for writing"):
        perfkit.analyze(tmp_path / "pipe.json")
    assert threading.active_count() == threads


@pytest.mark.timeout(MOST_S)
def test_text_from_a_pipe_is_not_read_again(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    with written(tmp_path / "pipe.json", b"hello"), pytest.raises(TraceError, match="is not JSON"):
        perfkit.analyze(tmp_path / "pipe.json")


@pytest.mark.parametrize("command", [["merge", "-o", "m.json"], ["view"], ["plan", "--check"]])
def test_what_reads_a_trace_several_times_refuses_a_pipe(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert main([*command, str(tmp_path / "pipe.json")]) == 1
    assert "pipe.json: is a pipe" in capsys.readouterr().err


@pytest.mark.parametrize("target", ["/proc/self", "..", "../../elsewhere", "../../elsewhere/rank1.json"])
@pytest.mark.timeout(200)  # /proc leads to everything that any process has open
def test_a_trace_is_a_regular_file_in_the_folder_or_is_named(tmp_path: Path, target: str) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "rank1.json").write_text("{}")
    folder = tmp_path / "given" / "run"
    folder.mkdir(parents=True)
    (folder / "link.json").symlink_to(target)
    with pytest.raises(TraceError, match=r"no trace .*\(link\.json is a link or a pipe, which is read only if its own"):
        find_runs([folder])
    (folder / "rank0.json").write_text("{}")
    (run,) = find_runs([folder])
    assert run.traces == [folder / "rank0.json"]
    if target.endswith("json"):
        assert [run.traces for run in find_runs([folder / "link.json"])] == [[folder / "link.json"]]


def test_a_device_is_refused_as_one_may_never_end() -> None:
    with pytest.raises(TraceError, match="/dev/zero: is a device, not a trace"):
        find_runs([Path("/dev/zero")])
