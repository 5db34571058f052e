"""Runs that are found have names of their own: what several runs tell goes by them."""

import io
import json
from pathlib import Path

import perfkit
from perfkit.report.history import write_html
from perfkit.trace.discover import discover
from tests.histories import make_history
from tests.unit.report.test_html import read


def names(*paths: Path) -> list[str]:
    return [run.name for run in discover(paths)]


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


def test_sweeps_of_the_same_points_are_one_history_with_a_level_before_and_after(tmp_path: Path) -> None:
    for number, ms in enumerate((10, 12)):
        steps = [ms + 0.1 * (day % 3) for day in range(8)]
        make_history(tmp_path / f"month-{number}" / "sweep", steps, first_day=30 * number)
    stream = io.StringIO()
    write_html(perfkit.history(tmp_path), stream, top=20)
    chart = json.loads(read(stream.getvalue()).data[0])
    assert [(level["from"], level["to"]) for level in chart["levels"]] == [(0, 7), (8, 15)]
    assert len(set(chart["runs"])) == 16
