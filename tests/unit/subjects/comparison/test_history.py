"""Histories: runs grouped by configuration, and their change points."""

import gzip
import io
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import perfkit
from perfkit.base.statistics.bootstrap import median_interval
from perfkit.base.statistics.series import FEWEST_FOR_CHANGE_POINT, find_change_points
from perfkit.errors import TraceError
from perfkit.records.comparison import History
from perfkit.records.manifest import RunManifest
from perfkit.report import reporter
from perfkit.storage.run_folder import read_manifest, write_manifest
from tests.support.reports.histories import make_history, make_run_folder
from tests.support.reports.report_builders import make_record

LOW = (10, 10.1, 10.2, 10.05)
HIGH = (12, 12.1, 12.2, 12.3)


def test_a_step_up_is_found_where_it_is() -> None:
    (found,) = find_change_points([*LOW, *HIGH])
    assert found.place == 4
    assert found.p_value == pytest.approx(2 / 70, abs=0.01)  # two of the orders of 4 and 4 part them wholly
    assert found.interval[0] < np.median(HIGH) / np.median(LOW) < found.interval[1]


def test_up_and_down_again_are_two() -> None:
    draw = np.random.default_rng(3)
    levels = [draw.normal(level, 0.2, count) for level, count in ((10, 12), (11, 15), (10, 9))]
    assert [shift.place for shift in find_change_points(np.concatenate(levels).tolist())] == [12, 27]


@pytest.mark.parametrize("values", [[], [5.0], [*LOW, *HIGH][: FEWEST_FOR_CHANGE_POINT - 1], [1.0] * 20, [*LOW, *LOW]])
def test_too_few_or_constant_runs_have_no_change_points(values: list[float]) -> None:
    assert find_change_points(values) == []


def test_false_positive_rate_is_as_documented() -> None:
    draw = np.random.default_rng(11)
    claimed = sum(bool(find_change_points(np.exp(draw.normal(0, 0.05, 12)).tolist())) for _ in range(100))
    assert claimed <= 12  # one in twenty is expected


def test_one_outlier_is_not_a_change_point() -> None:
    assert find_change_points([*LOW, 50, *LOW, *LOW]) == []


def test_the_interval_of_a_median_contains_it() -> None:
    low, high = median_interval([1, 2, 3, 4, 100])
    assert 1 <= low <= 3 <= high <= 100


def test_steps_are_without_the_profiler_if_all_runs_have_such_steps(tmp_path: Path) -> None:
    made = make_history(tmp_path, [10, 11])
    assert "profiled step" in shown(perfkit.history(made))
    for run in ("run-00", "run-01"):
        manifest = read_manifest(made / run)
        write_manifest(made / run, replace(manifest, step_kinds=["plain"] * 5, ranks=[make_record([7_000_000] * 5)]))
    (config,) = perfkit.history(made).configurations
    assert (config.measured_on, [point.step_ns for point in config.points]) == ("plain", [7_000_000] * 2)
    (marked,) = perfkit.history(made, step_marker="ProfilerStep#.*").configurations
    assert marked.measured_on == "recorded"


def shown(history: History) -> str:
    stream = io.StringIO()
    reporter(History, "markdown").write(history, stream, top=9)
    return stream.getvalue()


def test_runs_are_in_the_order_of_their_time_and_the_change_names_its_run(tmp_path: Path) -> None:
    commits = ["a" * 40] * 4 + ["b" * 40] * 4
    (lineage,) = perfkit.history(make_history(tmp_path, [*LOW, *HIGH], commits)).configurations
    assert [point.runs for point in lineage.points] == [[f"run-{number:02d}"] for number in range(8)]
    assert lineage.points[0].step_ns == pytest.approx(10e6, rel=0.01)
    assert lineage.points[0].resampled == "steps"
    (shift,) = lineage.change_points
    assert (shift.last_before, shift.run, shift.commit) == ("run-03", "run-04", "b" * 40)
    assert shift.after_ns / shift.before_ns == pytest.approx(12.15 / 10.075, rel=0.01)
    assert lineage.reason is None


def test_the_runs_of_a_commit_are_one_point(tmp_path: Path) -> None:
    commits = ["a" * 40, "b" * 40, "a" * 40, "a" * 40, None, None]
    (lineage,) = perfkit.history(make_history(tmp_path, [10, 12, 11, 10, 9, 9], commits), by="commit").configurations
    assert [len(point.runs) for point in lineage.points] == [3, 1, 1, 1]  # unknown commits are not one commit
    assert [point.resampled for point in lineage.points] == ["runs", "steps", "steps", "steps"]
    assert lineage.points[0].step_ns == pytest.approx(10e6, rel=0.01)
    assert lineage.reason == "6 runs: at least 8 are needed to tell a lasting change from noise"


def test_only_runs_of_one_configuration_are_compared(tmp_path: Path) -> None:
    make_history(tmp_path / "one", [10, 10])
    make_history(tmp_path / "two", [10], config={"batch_size": 8, "trace_dir": "elsewhere"})
    make_run_folder(tmp_path / "left" / "running", 10, state="running")
    make_run_folder(tmp_path / "left" / "timeless", 10, started_at="yesterday")
    foreign = make_run_folder(tmp_path / "left" / "foreign", 10)
    (foreign / "run.json").unlink()
    (make_run_folder(tmp_path / "left" / "damaged", 10) / "run.json").write_text("{")
    for trace in make_run_folder(tmp_path / "left" / "timed", 10).glob("*.json.gz"):
        trace.unlink()
    cut = make_run_folder(tmp_path / "left" / "cut", 10) / "rank0.json.gz"
    text = gzip.decompress(cut.read_bytes())
    cut.write_bytes(gzip.compress(text[: len(text) * 3 // 4]))
    history = perfkit.history(tmp_path)
    assert [(one.settings["batch_size"], one.runs) for one in history.configurations] == [(4, 2), (8, 1)]
    excluded = {finding.message.partition(" is excluded: ")[::2] for finding in history.findings}
    (lost,) = {reason for run, reason in excluded if run == "cut"}
    assert lost.startswith("rank0.json.gz: the file breaks at byte ")
    assert excluded - {("cut", lost)} == {
        ("running", "its state is running"),
        ("timeless", "its run.json has no valid start time"),
        ("foreign", "it has no run.json, so its start time and configuration are unknown"),
        ("timed", "none of its steps is in a trace (with --no-profile none is): a history compares those"),
        ("damaged", "its run.json cannot be read, so its start time and configuration are unknown"),
    }
    with pytest.raises(TraceError, match=r"no run to put into a history: .*excluded.* \(and 5 more\)"):
        perfkit.history(tmp_path / "left")


def test_the_default_data_folder_beside_the_runs_is_no_difference(tmp_path: Path) -> None:
    for day in ("monday", "tuesday"):
        config = {"trace_dir": f"traces/{day}", "data_dir": f"traces/{day}/.data"}
        make_run_folder(tmp_path / day, 10, source="hdf5", config=config)
    slashed = {"trace_dir": "traces/sunday/", "data_dir": "traces/sunday/.data"}
    make_run_folder(tmp_path / "sunday", 10, source="hdf5", config=slashed)
    elsewhere = {"trace_dir": "traces", "data_dir": "/slow/disk"}
    make_run_folder(tmp_path / "other", 10, source="hdf5", config=elsewhere)
    assert [one.runs for one in perfkit.history(tmp_path).configurations] == [3, 1]


def test_a_manifest_without_a_commit_can_be_read(tmp_path: Path) -> None:
    folder = make_run_folder(tmp_path / "old", 10)
    manifest = read_manifest(folder)
    assert isinstance(manifest, RunManifest)
    write_manifest(folder, manifest)
    text = (folder / "run.json").read_text()
    (folder / "run.json").write_text(text.replace('  "commit": null,\n', ""))
    assert "commit" not in (folder / "run.json").read_text()
    assert perfkit.history(folder).configurations[0].points[0].commit is None
