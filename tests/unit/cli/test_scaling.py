"""Folders of runs, analysed together from their manifests."""

import json
from pathlib import Path
from typing import Any

import pytest

import perfkit
from perfkit.cli import main
from perfkit.errors import UsageError
from perfkit.records.manifest import Failure, RankRecord, RunManifest, World
from perfkit.report.json_schema import schema
from perfkit.storage.run_folder import create_run_folder, write_manifest
from tests.support.json_validation import jsonschema
from tests.support.reports.report_builders import MS

KINDS: list[Any] = ["cold", "plain", "plain", "plain", "plain", "plain", "plain"]


def write_run(folder: Path, size: int, step_ms: float, *, name: str, **changes: Any) -> None:
    """A run that was only timed; each step's slowest rank takes `step_ms`."""
    config = {"batch_size": 16, "accumulate": 1, "compile": False, "profile": False, "name": name}
    config |= changes.pop("config", {})
    walls = [[900 * MS] + [round((step_ms - slower) * MS) for _ in KINDS[1:]] for slower in range(size)]
    fields: dict[str, Any] = {
        "run": name,
        "state": "completed",
        "workload": "gpt",
        "source": "memory",
        "started_at": "2026-01-01T00:00:00+00:00",
        "config": config,
        "versions": {"torch": "2.13.0"},
        "backend": "gloo",
        "device": "cpu",
        "world": World(world_size=size, nodes=1, launcher="mpi", local_world_sizes=[size]),
        "batch_size": 16,
        "step_kinds": KINDS,
        "ranks": [
            RankRecord(
                rank=rank,
                local_rank=rank,
                node_rank=0,
                host="node",
                device="cpu",
                device_name="a cpu",
                threads=1,
                node_cores=8,
                step_wall_ns=walls[rank],
                load_ns=[0] * len(KINDS),
                loss=[None] * len(KINDS),
            )
            for rank in range(size)
        ],
    }
    write_manifest(create_run_folder(folder, name), RunManifest(**(fields | changes)))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    for size, ms in ((1, 100.0), (2, 105.0), (4, 118.0), (8, 160.0)):
        for repeat in range(2):
            write_run(folder, size, ms + repeat, name=f"gpt-{size}-{repeat}")
    failure = Failure(rank=3, message="killed")
    write_run(folder, 6, 100, name="lost", state="failed", failure=failure, ranks=[], batch_size=None)
    return folder


def test_a_folder_of_runs_is_a_series(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", str(runs)]) == 0
    shown = capsys.readouterr().out
    assert "Scaling: gpt weak (batch 16 per rank)" in shown
    assert "error  lost: run_failed: the run failed (rank 3: killed)" in shown
    assert "Gustafson" not in shown
    assert main(["analyze", str(runs), "--full"]) == 0
    shown = capsys.readouterr().out
    assert "lost failed: the run failed (rank 3: killed)" in shown
    assert "Gustafson" in shown


def test_json_holds_the_series_and_is_valid(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.json"
    assert main(["analyze", str(runs), "--forecast", "16, 32", "-o", str(out)]) == 0
    report = json.loads(out.read_text())
    jsonschema.Draft202012Validator(schema("report")).validate(report)
    (series,) = report["multi_run"]["series"]
    steps_ns = [point["step_time"]["step_ns"]["value"] for point in series["points"]]
    assert steps_ns == [100.5e6, 105.5e6, 118.5e6, 160.5e6]
    assert {point["step_time"]["measured_on"] for point in series["points"]} == {"plain"}
    assert series["points"][0]["factors_reason"] == "no trace was recorded"
    assert [one["world_size"] for one in series["forecasts"]] == [16, 32]
    assert [one["world_size"] for one in series["failed"]] == [6]


def test_by_an_option(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(runs, 2, 70, name="compiled", config={"compile": True})
    assert main(["analyze", str(runs), "--by", "compile"]) == 0
    shown = capsys.readouterr().out
    assert "By compile: otherwise identical runs (gpt, batch 16 per rank)" in shown
    assert main(["analyze", str(runs), "--by", "--compile"]) == 0
    axes = perfkit.analyze(runs, by=["compile"]).multi_run
    assert axes is not None
    assert [row.value for row in axes.option_comparisons[0].rows] == ["off", "on"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--by", "overlap"], "--by overlap: no runs differ only in that option"),
        (["--forecast", "0"], "--forecast 0: write numbers from 1 to 10,000,000, such as 8,16,32"),
        (["--forecast", "8,many"], "--forecast 8,many: write numbers from 1 to"),
        (["--forecast", ""], "--forecast : write numbers from 1 to"),
        (["--forecast", "99999999999"], "--forecast 99999999999: write numbers from 1 to"),
        (["-o", "x.talp.json"], "a TALP file contains one run, not 9"),
    ],
)
def test_what_cannot_be_is_one_line(
    runs: Path,
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["analyze", str(runs), *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"perfkit: error: {message}")
    assert captured.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir() if path.suffix] == []


def test_a_forecast_of_one_run_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path, 1, 100, name="one")
    with pytest.raises(UsageError, match="no series to forecast"):
        perfkit.analyze(tmp_path, forecast=[2])
