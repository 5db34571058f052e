"""`perfkit history` from end to end."""

import json
from pathlib import Path

import msgspec
import pytest

from perfkit.cli import main
from perfkit.records.comparison import History
from perfkit.report.json_schema import schema
from tests.support.json_validation import jsonschema
from tests.support.reports.histories import make_history

STEPS_MS = (100, 101, 102, 100.5, 120, 121, 122, 123)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    make_history(root / "cpu", STEPS_MS, ["a" * 40] * 4 + ["b" * 40] * 4)
    return make_history(root / "hdf5", [30], source="hdf5", versions={"torch": "2.12.0"}).parent


def test_the_terminal_names_the_change(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(runs)]) == 0
    shown = capsys.readouterr().out
    assert "8 runs: profiled step time 101 ms → 122 ms (+20" in " ".join(shown.split())
    assert "1 run: at least 8 are needed to tell a lasting change from noise." in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_every_format_is_written(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / f"history{suffix}" for suffix in (".json", ".md", ".html", ".txt")]
    assert main(["history", str(runs), "--by", "commit", *(word for f in files for word in ("-o", str(f)))]) == 0
    data = json.loads(files[0].read_text())
    jsonschema.Draft202012Validator(schema("history")).validate(data)
    found = msgspec.json.decode(files[0].read_bytes(), type=History)
    assert [[len(point.runs) for point in one.points] for one in found.configurations] == [[4, 4], [1]]
    for file in files[1:]:
        assert "+20." in file.read_text()
    assert capsys.readouterr().out == files[3].read_text()


def test_only_the_newest_are_listed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(runs / "cpu"), "--last", "3", "-f", "markdown"]) == 0
    shown = capsys.readouterr().out
    assert "5 older rows not shown" in shown
    assert "run-04 |" not in shown.partition("### Step time")[2]
    assert "run-05 |" in shown


def test_new_versions_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, version in enumerate(("2.12.0", "2.13.0")):
        at = f"2026-01-0{number + 1}T00:00:00Z"
        make_history(tmp_path / str(number), [10], versions={"torch": version}, started_at=at)
    assert main(["history", str(tmp_path), "-f", "markdown"]) == 0
    assert "torch 2.12.0 → 2.13.0" in capsys.readouterr().out


def test_nothing_to_look_back_on_is_one_line(real_traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", str(real_traces / "gpu-dlrm-2of128")]) == 1
    error = capsys.readouterr().err
    assert error.startswith("perfkit: error: no run to put into a history: gpu-dlrm-2of128 is excluded")
    assert error.count("\n") == 1
