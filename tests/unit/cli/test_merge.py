"""`perfkit merge`: rejected input is one error line and leaves no file."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit.base.formatting import size
from perfkit.cli import main
from tests.support.processes.command import run_command
from tests.support.processes.launching import LIMIT_S
from tests.support.traces.trace_builder import TraceBuilder

pytestmark = pytest.mark.usefixtures("shared_cache")

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "traces" / "sample-memory"


def merge(*args: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return run_command("merge", *args, cwd=cwd)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ranks", "9"], "--ranks 9: no such rank; existing: 0, 1"),
        (["--ranks", "0-9"], "--ranks 9: no such rank"),
        (["--steps", "99"], "--steps 99: no such step; existing: 2 to 4"),
        (["--steps", "4-2"], "--steps 4-2: give numbers and ranges such as 0,7 or 12-14"),
        (["--ranks", ","], "--ranks (nothing): give numbers and ranges"),
        (["--ranks", "9" * 400], "give numbers and ranges"),
        (["-o", "out.txt"], "-o out.txt: the file name suffix is not a known output format; use .pftrace"),
        (["--step-marker", "("], "is not a regular expression"),
        (["--data-marker", "("], "--data-marker '(' is not a regular expression"),
        (["-o", str(SAMPLE / "rank0.json.gz")], "is one of the traces"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = merge(SAMPLE, *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_a_folder_of_runs_is_refused(tmp_path: Path) -> None:
    done = merge(ROOT / "traces", cwd=tmp_path)
    assert done.returncode == 2
    assert re.search(r"contains \d+ runs", done.stderr)
    (tmp_path / "rank0.json").write_text("{")
    done = merge(tmp_path / "rank0.json", cwd=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)


def test_without_a_name_it_is_called_as_the_run(tmp_path: Path) -> None:
    done = merge(SAMPLE, "--ranks", "1", "--steps", "3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    written_bytes = (tmp_path / "sample-memory.pftrace").stat().st_size
    assert done.stderr.startswith(f"Wrote sample-memory.pftrace ({size(written_bytes)}): 1 rank, ")
    assert not done.stdout
    result = json.loads(merge(SAMPLE, "--json", cwd=tmp_path).stdout)
    (written,) = tmp_path.iterdir()
    assert (result["path"], result["ranks"], result["bytes"]) == (written.name, 2, written.stat().st_size)
    assert written.name == "sample-memory.pftrace"


def test_dots_in_the_name_of_a_run_are_no_suffix(tmp_path: Path) -> None:
    run = tmp_path / "20260101-gpt-dropout=0.1-abcd1234-r1"
    run.mkdir()
    file = TraceBuilder().step(0, 0, 100).op("aten::mm", 10, 50).write(run / "rank0.v1.pt.trace.json.gz")
    (tmp_path / "here").mkdir()
    for path, name in ((run, f"{run.name}.pftrace"), (file, "rank0.v1.pt.trace.pftrace")):
        done = merge(path, cwd=tmp_path / "here")
        assert done.stderr.startswith(f"Wrote {name} ("), done.stderr
    assert len(list((tmp_path / "here").iterdir())) == 2


def test_a_rank_that_cannot_be_read_is_left_out_aloud(tmp_path: Path) -> None:
    TraceBuilder(rank=0, world_size=2).step(0, 0, 100).op("aten::mm", 10, 50).write(tmp_path / "rank0.json")
    (tmp_path / "rank1.json").write_text("")
    done = merge(tmp_path, "-o", tmp_path / "out" / "merged.json")
    assert done.returncode == 0
    assert "rank1.json: the file is empty" in done.stderr
    document = json.loads((tmp_path / "out" / "merged.json").read_text())
    assert [e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"] == ["rank 0"]


def test_a_timeline_is_no_trace_of_a_run(tmp_path: Path) -> None:
    TraceBuilder(rank=0).step(0, 0, 100).op("aten::mm", 10, 50).write(tmp_path / "rank0.json")
    assert merge(tmp_path, "-o", tmp_path / "merged.json").returncode == 0
    command = [sys.executable, "-m", "perfkit", "analyze", str(tmp_path), "-f", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    (run,) = json.loads(done.stdout)["runs"]
    assert [rank["rank"] for rank in run["ranks"]] == [0]
    assert merge(tmp_path, "-o", tmp_path / "again.json").returncode == 0


def test_traces_of_unknown_ranks_are_refused_but_alone(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        TraceBuilder(rank=None, world_size=None).step(0, 0, 9).op("aten::mm", 1, 5).write(tmp_path / name)
    done = merge(tmp_path, cwd=tmp_path)
    assert (done.returncode, "has no rank in its header or name" in done.stderr) == (2, True)
    assert merge(tmp_path / "a.json", "-o", tmp_path / "a.pftrace").returncode == 0


@pytest.mark.parametrize("command", ["merge", "stacks"])
def test_a_trace_whose_end_is_lost_is_named_if_it_is_shown(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is written looks whole: the run seems to end where the trace breaks."""
    for rank in range(2):
        builder = TraceBuilder(rank, 2).step(0, 0, 100).op("aten::mm", 0, 50).step(1, 100, 100).op("aten::mm", 100, 50)
        builder.write(tmp_path / f"rank{rank}.json")
    whole = (tmp_path / "rank1.json").read_bytes()
    (tmp_path / "rank1.json").write_bytes(whole[: whole.rindex(b"aten::mm")])
    output = ["-o", str(tmp_path / ("out.pftrace" if command == "merge" else "out.txt"))]
    assert main([command, str(tmp_path), *output]) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "breaks" in line)
    assert line.startswith("perfkit: warning: rank1.json: the file breaks at byte")
    assert main([command, str(tmp_path), *output, "--ranks", "0"]) == 0
    assert "breaks" not in capsys.readouterr().err
