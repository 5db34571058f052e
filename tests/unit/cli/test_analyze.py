"""`perfkit analyze`: formats, files and terminals, on real traces."""

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit.cli import main
from perfkit.report.json_schema import schema
from perfkit.report.output_files import writing
from perfkit.subjects.table import SUBJECTS
from tests.support.json_validation import jsonschema
from tests.support.processes.command import run_command
from tests.support.processes.launching import LIMIT_S
from tests.support.traces.trace_builder import TraceBuilder


@pytest.fixture
def trace(real_traces: Path) -> str:
    return str(real_traces / "cpu-gloo-1of300")


def test_terminal_is_the_default(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", trace]) == 0
    shown = capsys.readouterr().out
    assert "1 of 300 ranks, cpu, gloo" in " ".join(shown.split())
    assert len(shown.splitlines()) <= 24
    assert "\x1b" not in shown


def test_full_prints_all_tables(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", trace, "--full"]) == 0
    shown = capsys.readouterr().out
    assert "Where the step's time goes" in shown
    assert "1 of 300 (rank 34)" in shown
    assert main(["analyze", trace, "--full", "-f", "json"]) == 2
    assert "for the terminal" in capsys.readouterr().err


def test_a_section_is_printed_alone(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", trace, "--section", "idle"]) == 0
    shown = capsys.readouterr().out
    assert "Idle time by cause" in shown
    assert "Where the step's time goes" not in shown
    assert main(["analyze", trace, "--section", "sharding"]) == 0
    assert "nothing about sharding in this run" in capsys.readouterr().out
    assert main(["analyze", trace, "--section", "nonsense"]) == 2
    assert "'nonsense' is not one of ranks, monitor, critical-path" in capsys.readouterr().err


def test_the_short_answer_imports_no_tables(trace: str) -> None:
    program = (
        "import sys; from perfkit.cli import main; assert main(sys.argv[1:]) == 0; "
        "print(*(name for name in sys.modules if name.startswith('perfkit.report.') or '.' not in name))"
    )
    command = [sys.executable, "-c", program, "analyze", trace, "--no-cache"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_S)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert not {f"perfkit.subjects.{name.replace('-', '_')}.tables" for name in SUBJECTS.names()} & loaded
    assert not {"perfkit.report.renderers.console", "perfkit.report.charts", "pandas", "plotly", "jinja2"} & loaded


def test_json_on_stdout_is_valid(trace: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", trace, "-f", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(schema("report")).validate(report)
    assert report["runs"][0]["ranks"][0]["rank"] == 34


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("r.json", "{"),
        ("r.md", "# perfkit report"),
        ("r.csv", "run,rank,step"),
        ("r.txt", "cpu-gloo"),
        ("r", "cpu-gloo"),
    ],
)
def test_the_suffix_says_the_format(trace: str, name: str, start: str, tmp_path: Path) -> None:
    assert main(["analyze", trace, "-o", str(tmp_path / name)]) == 0
    assert (tmp_path / name).read_text("utf-8").startswith(start)
    assert [f.name for f in tmp_path.iterdir()] == [name]


def test_format_wins_over_the_suffix(trace: str, tmp_path: Path) -> None:
    out = tmp_path / "steps.txt"
    assert main(["analyze", trace, "-f", "csv", "-o", str(out)]) == 0
    assert len(list(csv.DictReader(io.StringIO(out.read_text("utf-8"))))) == 1


def test_options_reach_the_analysis(real_traces: Path, tmp_path: Path) -> None:
    trace = str(real_traces / "small" / "mi250-three-steps.json.gz")
    out = tmp_path / "steps.csv"
    assert main(["analyze", trace, "--rank", "7", "-o", str(out)]) == 0
    steps = list(csv.DictReader(io.StringIO(out.read_text("utf-8"))))
    assert {step["rank"] for step in steps} == {"7"}
    assert len(steps) == 2
    assert main(["analyze", trace, "--step-marker", "^no such annotation$", "-o", str(out)]) == 0
    assert [step["step"] for step in csv.DictReader(io.StringIO(out.read_text("utf-8")))] == [""]


def test_top_limits_the_ranked_tables(real_traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(real_traces / "gpu-dlrm-2of128"), "--full", "--top", "1"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"198 more, [0-9.]+ m?s in total", shown)
    table = shown[shown.index("\nCollectives across ranks") : shown.index("3 more rows")]
    assert table.count("all_to_all") == 1  # it is the first of them


def test_the_folder_of_a_report_is_made(trace: str, tmp_path: Path) -> None:
    assert main(["analyze", trace, "-o", str(tmp_path / "new" / "r.md")]) == 0
    assert (tmp_path / "new" / "r.md").read_text().startswith("# perfkit report")


def test_a_folder_that_cannot_be(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert main(["analyze", trace, "-o", str(tmp_path / "file" / "r.md")]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"perfkit: error: cannot write {tmp_path}/file/r.md: ")
    assert error.count("\n") == 1


def test_no_trace_at_the_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(tmp_path / "nothing")]) in {1, 2}
    assert capsys.readouterr().err.count("\n") == 1


def test_a_report_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "report.md"
    target.write_text("old")

    def fail() -> None:
        with writing(target) as stream:
            stream.write("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_device_is_written_to_and_not_replaced() -> None:
    with writing(Path(os.devnull)) as stream:
        stream.write("gone")
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_any_locale(trace: str, encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "perfkit", "analyze", trace, "-f", "rich"],
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "80"},
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode(encoding)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
@pytest.mark.parametrize("name", ["json", "markdown"])
def test_files_are_utf_8_in_any_locale(trace: str, encoding: str, name: str) -> None:
    done = run_command("analyze", trace, "-f", name, encoding=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_a_trace_larger_than_allowed_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = TraceBuilder(0, 1).step(0, 0, 100).op("aten::mm", 0, 50).write(tmp_path / "rank0.json.gz")
    assert main(["analyze", str(trace), "--max-bytes", "100"]) == 1
    assert "--max-bytes" in capsys.readouterr().err
    assert main(["analyze", str(trace), "--max-bytes", "100000", "-o", str(tmp_path / "report.json")]) == 0


def test_a_wrong_rule_is_one_line(trace: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rule]]\npattern = "acme"\nkind = "network"\n')
    for command in (["analyze", trace], ["history", trace], ["merge", trace, "-o", str(tmp_path / "x.pftrace")]):
        assert main([*command, "--kernel-rules", str(rules)]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "rule 1: kind 'network' is none of communication, compute, memcpy, wait" in line
