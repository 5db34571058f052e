"""The report of a sweep on points without a run."""

import json
import shutil
from pathlib import Path

import pytest

from perfkit.cli import main
from perfkit.records.sweep import PointState, SweepPoint
from perfkit.storage.run_folder import SWEEP_NAME, write_sweep

pytestmark = pytest.mark.usefixtures("shared_cache")

SAMPLE = Path(__file__).parents[3] / "traces" / "sample-memory"


def point(run: str, state: PointState, reason: str | None = None) -> SweepPoint:
    return SweepPoint(run=run, key="0", ranks=2, repeat=1, scaling=[], arguments=[], state=state, reason=reason)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    folder = tmp_path / "sweep-gpt"
    shutil.copytree(SAMPLE, folder / "here")
    failed = [point("gone", "failed", "rank 1: no such device"), point("later", "planned"), point("last", "planned")]
    write_sweep(folder, [point("here", "completed"), *failed])
    return folder


@pytest.mark.parametrize("suffix", ["md", "txt", "html"])
def test_points_without_a_run_are_in_every_report(sweep: Path, suffix: str) -> None:
    output = sweep.parent / f"report.{suffix}"
    assert main(["analyze", str(sweep), "-o", str(output)]) == 0
    text = " ".join(output.read_text("utf-8").split())
    assert "sweep-gpt: gone is missing because its run failed: rank 1: no such device" in text
    assert "sweep-gpt: 2 of 4 points have not run yet" in text


def findings(*paths: Path, capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str]]:
    assert main(["analyze", *map(str, paths), "-f", "json"]) == 0
    return [(one["code"], one["severity"]) for one in json.loads(capsys.readouterr().out)["findings"]]


def test_a_sweep_is_told_of_where_its_folder_was_searched(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = [("point_failed", "error"), ("sweep_points_pending", "info")]
    assert findings(sweep, capsys=capsys) == expected
    assert findings(sweep.parent, capsys=capsys) == expected
    assert findings(sweep / "here", capsys=capsys) == []


def test_a_damaged_record_of_a_sweep_costs_nothing_else(sweep: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (sweep / SWEEP_NAME).write_text("{}")
    assert findings(sweep, capsys=capsys) == [("unreadable_sweep", "warning")]
