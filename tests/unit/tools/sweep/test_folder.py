import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfkit.errors import StoreError
from perfkit.records.sweep import Sweep
from perfkit.storage.discovery import find_runs
from perfkit.tools.sweep import folder as folders
from perfkit.tools.sweep.folder import SweepFolder
from perfkit.tools.sweep.plan import Axis
from tests.support.reports.sweep_builders import leave_run, points_of, wanted


def test_the_state_of_a_point_comes_from_its_run_folder(tmp_path: Path) -> None:
    one, two = points_of(wanted())
    leave_run(tmp_path, one)
    folder = SweepFolder(tmp_path)
    assert (folder.state(one), folder.state(two)) == ("completed", "absent")
    leave_run(tmp_path, two, "failed")
    assert (folder.state(two), folder.reason(two)) == ("failed", "rank 1: no\nluck")
    assert [folder.state(point.as_repeat(2)) for point in (one, two)] == ["absent", "absent"]


def test_a_moved_sweep_is_the_same_sweep(tmp_path: Path) -> None:
    one, _ = points_of(wanted())
    leave_run(tmp_path / "a", one)
    (tmp_path / "a").rename(tmp_path / "b")
    assert SweepFolder(tmp_path / "b").state(one) == "completed"


def test_a_point_is_found_after_an_axis_was_added(tmp_path: Path) -> None:
    one, _ = points_of(wanted())
    leave_run(tmp_path, one)
    # What was the default before is now said in the name.
    added, _ = points_of(wanted(axes=(Axis("source", ("memory",)), Axis("accumulate", ("1",)))))
    added = msgspec.structs.replace(added, key=one.key, config=one.config)
    assert added.name != one.name
    folder = SweepFolder(tmp_path)
    assert folder.state(added) == "completed"
    assert folder.record_of(added).run == one.name


@pytest.mark.parametrize("changes", [{"workload": "transformer"}, {"config": {"steps": 9}}])
def test_a_run_of_another_configuration_is_not_the_point(tmp_path: Path, changes: dict[str, Any]) -> None:
    one, _ = points_of(wanted())
    leave_run(tmp_path, one, **changes)
    assert SweepFolder(tmp_path).state(one) == "failed"


@pytest.mark.parametrize("content", [None, "", "{", '{"schema_version": 99}'])
def test_a_folder_without_a_readable_manifest_is_a_failed_attempt(tmp_path: Path, content: str | None) -> None:
    one, _ = points_of(wanted())
    (tmp_path / one.name).mkdir()
    if content is not None:
        (tmp_path / one.name / "run.json").write_text(content)
    folder = SweepFolder(tmp_path)
    assert (folder.state(one), folder.reason(one)) == ("failed", None)


def test_failed_attempts_are_kept_and_not_analysed(tmp_path: Path) -> None:
    one, two = points_of(wanted())
    folder = SweepFolder(tmp_path)
    assert folder.move_aside(one) is None
    leave_run(tmp_path, two)
    for number in (1, 2, 3):
        run = leave_run(tmp_path, one, "failed")
        (run / "rank0.json.gz").write_bytes(bytes([number]))
        assert folder.move_aside(one) == folder.earlier / f"{one.name}.{number}"
    assert [(path / "rank0.json.gz").read_bytes()[0] for path in sorted(folder.earlier.iterdir())] == [1, 2, 3]
    assert folder.state(one) == "absent"
    folder.write_records([folder.record_of(two)])
    folder.log(two).write_text("said\n")
    assert [run.name for run in find_runs([tmp_path])] == [two.name]


def test_the_record_keeps_the_points_of_other_calls(tmp_path: Path) -> None:
    one, two = points_of(wanted())
    folder = SweepFolder(tmp_path / "new")
    folder.write_records([folder.record_of(one), folder.record_of(two)])
    failed = msgspec.structs.replace(folder.record_of(one), state="failed", reason="because")
    folder.write_records([failed])
    again = SweepFolder(tmp_path / "new")
    (added,) = points_of(wanted(ranks=(4,)))
    again.write_records([again.record_of(added)])
    read = msgspec.json.decode((tmp_path / "new" / "sweep.json").read_bytes(), type=Sweep)
    assert [(point.ranks, point.state, point.reason) for point in read.points] == [
        (1, "failed", "because"),
        (2, "planned", None),
        (4, "planned", None),
    ]
    assert read.schema_version == 2
    assert read.points[2].arguments == list(added.arguments)


def test_the_run_folder_overrides_the_record(tmp_path: Path) -> None:
    one, two = points_of(wanted())
    folder = SweepFolder(tmp_path)
    done = msgspec.structs.replace(folder.record_of(one), state="completed", wall_ns=5)
    failed = msgspec.structs.replace(folder.record_of(two), state="failed", reason="because")
    folder.write_records([done, failed])
    leave_run(tmp_path, two)  # by a job, say
    noted = [folder.record_of(point) for point in (one, two)]
    assert [(point.state, point.reason) for point in noted] == [("planned", None), ("completed", None)]


def test_a_point_of_both_scalings_is_one_point(tmp_path: Path) -> None:
    (strong, _), (weak, _) = (points_of(wanted(scaling=(kind,))) for kind in ("strong", "weak"))
    folder = SweepFolder(tmp_path)
    folder.write_records([folder.record_of(strong)])
    assert folder.record_of(weak).scaling == ["strong", "weak"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "not a valid sweep record"),
        ('{"schema_version": 2, "points": [{}]}', "not a valid sweep record"),
        ('{"schema_version": 3}', "has schema version 3, this perfkit reads 2"),
    ],
)
def test_an_unreadable_record_is_not_overwritten(tmp_path: Path, content: str, why: str) -> None:
    (tmp_path / "sweep.json").write_text(content)
    with pytest.raises(StoreError, match=why):
        SweepFolder(tmp_path)
    assert (tmp_path / "sweep.json").read_text() == content


def test_two_sweeps_do_not_run_in_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_PATIENCE_S", 0.0)
    folder = SweepFolder(tmp_path)
    with folder.locked() as lock:
        assert lock is not None
        with pytest.raises(StoreError, match="another sweep"), SweepFolder(tmp_path).locked():
            pass
    with SweepFolder(tmp_path).locked() as again:
        assert again is not None


def test_a_sweep_waits_for_the_last_processes_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "_PATIENCE_S", 60.0)
    folder = SweepFolder(tmp_path)
    with folder.locked() as lock:
        assert lock is not None
        late = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.5)"], pass_fds=(lock,))
    with folder.locked():
        assert late.wait() == 0


def test_the_record_is_read_again_under_the_lock(tmp_path: Path) -> None:
    one, two = points_of(wanted())
    first, second = SweepFolder(tmp_path), SweepFolder(tmp_path)
    with first.locked():
        first.write_records([first.record_of(one)])
    with second.locked():
        second.write_records([second.record_of(two)])
    assert [point.run for point in SweepFolder(tmp_path).records] == [one.name, two.name]


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="choose another --trace-dir"), SweepFolder(tmp_path / "file" / "x").locked():
        pass
