"""The loop over points and the lifetime of their processes; small programs replace the launcher."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from perfkit.errors import StoreError
from perfkit.records.sweep import SweepPoint
from perfkit.tools.sweep import folder as folders
from perfkit.tools.sweep import subprocess_group as process
from perfkit.tools.sweep.folder import SweepFolder
from perfkit.tools.sweep.point import Point
from perfkit.tools.sweep.runner import InterruptedSweepError, execute, time_left_s
from perfkit.tools.sweep.subprocess_group import Signals, descendants, run_process
from tests.support.processes.launching import LIMIT_S, still_alive
from tests.support.reports.sweep_builders import leave_run, points_of, wanted


class Told:
    def __init__(self) -> None:
        self.begun: list[str] = []
        self.ended: list[tuple[str, str | None]] = []

    def begin(self, point: Point, left_s: float | None) -> None:  # as `Show` has it
        self.begun.append(point.name)

    def end(self, noted: SweepPoint) -> None:
        self.ended.append((noted.state, noted.reason))


def new_folder(path: Path) -> SweepFolder:
    path.mkdir()
    return SweepFolder(path)


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def _saying(code: str, _point: Point) -> list[str]:
    return python(code)


def completing(ready: Path, folder: Path) -> Callable[[Point], list[str]]:
    """Return commands that leave a completed run, made beforehand in `ready`."""

    def command(point: Point) -> list[str]:
        made = leave_run(ready, point, config=point.config | {"trace_dir": str(folder), "name": point.name})
        return python(f"import os; os.rename({str(made)!r}, {str(folder / point.name)!r})")

    return command


@contextmanager
def signalled_when(there: Callable[[], bool], number: signal.Signals) -> Iterator[None]:

    def send() -> None:
        deadline = time.monotonic() + LIMIT_S
        while not there() and time.monotonic() < deadline:
            time.sleep(0.02)
        if there():
            os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        sender.join()


def test_a_point_that_fails_leaves_the_others_done(tmp_path: Path) -> None:
    folder, told = new_folder(tmp_path / "s"), Told()
    points = points_of(wanted(ranks=(1, 2, 4)))
    two = points[1]
    complete = completing(tmp_path / "ready", folder.path)
    said = "import sys; print('step 1'); sys.exit('perfkit: error: rank 1: no\\tluck')"

    noted = execute(folder, points, lambda point: python(said) if point is two else complete(point), told)

    assert [point.state for point in noted] == ["completed", "failed", "completed"]
    assert told.ended == [("completed", None), ("failed", "rank 1: no luck"), ("completed", None)]
    assert told.begun == [point.name for point in points]
    assert SweepFolder(folder.path).records == noted
    assert noted[0].wall_ns is not None
    assert noted[1].wall_ns is None
    assert [folder.state(point) for point in points] == ["completed", "absent", "completed"]
    assert "step 1\n" in folder.log(two).read_text()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import sys; sys.exit(7)", "exit code 7"),
        ("pass", "exit code 0"),  # it did nothing
        ("raise ValueError('x')", "ValueError: x"),
        ("print('perfkit: error: first'); print('perfkit: error: last'); print('bye')", "last"),
        ("print('\\x1b[31mred')", "\\x1b[31mred"),
        ("print(4000 * 'x')", 500 * "x"),
        ("print('no slots'); print(80 * '-'); print()", "no slots"),
    ],
)
def test_the_reason_is_one_line(code: str, reason: str, tmp_path: Path) -> None:
    folder = SweepFolder(tmp_path)
    (noted,) = execute(folder, points_of(wanted(ranks=(1,))), lambda _: python(code), Told())
    assert (noted.state, noted.reason) == ("failed", reason)


def test_the_reason_is_that_of_this_attempt(tmp_path: Path) -> None:
    folder, (point,) = SweepFolder(tmp_path), points_of(wanted(ranks=(1,)))
    for code, reason in (("print('perfkit: error: old')", "old"), ("pass", "exit code 0")):
        (noted,) = execute(folder, [point], partial(_saying, code), Told())
        assert noted.reason == reason
    assert folder.log(point).read_text() == "perfkit: error: old\n"


def test_the_manifest_explains_a_failure(tmp_path: Path) -> None:
    folder, (point,) = new_folder(tmp_path / "s"), points_of(wanted(ranks=(1,)))
    made = leave_run(tmp_path / "ready", point, "failed")
    code = f"import os; os.rename({str(made)!r}, {str(folder.path / point.name)!r}); print('killed')"
    (noted,) = execute(folder, [point], lambda _: python(code), Told())
    assert noted.reason == "rank 1: no luck"
    # And another try keeps what this one has left.
    (noted,) = execute(folder, [point], completing(tmp_path / "ready", folder.path), Told())
    assert (noted.state, noted.reason) == ("completed", None)
    assert [path.name for path in folder.earlier.iterdir()] == [f"{point.name}.1"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_point_and_the_sweep_can_continue(number: signal.Signals, tmp_path: Path) -> None:
    folder, told = new_folder(tmp_path / "s"), Told()
    one, two, three = points = points_of(wanted(ranks=(1, 2, 4)))
    complete, begun = completing(tmp_path / "ready", folder.path), tmp_path / "begun"
    endless = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(10 * {LIMIT_S})"
    before = signal.getsignal(number)

    with signalled_when(begun.exists, number), pytest.raises(InterruptedSweepError) as raised:
        execute(folder, points, lambda point: python(endless) if point is two else complete(point), told)

    assert raised.value.exit_code == 128 + number
    assert str(raised.value).startswith(f"ended by {number.name}: 1 of 3 points ran")
    assert told.begun == [one.name, two.name]
    assert told.ended == [("completed", None)]
    assert signal.getsignal(number) == before
    assert {point.run: point.state for point in SweepFolder(folder.path).records} == {
        one.name: "completed",
        two.name: "planned",
    }
    missing = [point for point in points if folder.state(point) != "completed"]
    assert missing == [two, three]


def test_a_sweep_under_nohup_outlives_the_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Signals() as signals:
            os.kill(os.getpid(), signal.SIGHUP)
            signals.sleep(0.1)
        assert signals.last is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_ends_a_pause(tmp_path: Path) -> None:
    folder, points = SweepFolder(tmp_path), points_of(wanted())
    log = folder.log(points[0])
    with signalled_when(lambda: bool(folder.records), signal.SIGINT), pytest.raises(InterruptedSweepError):
        execute(folder, points, lambda _: python("pass"), Told(), pause_s=10 * LIMIT_S)
    assert not folder.log(points[1]).exists()
    assert log.exists()


def test_a_hung_launcher_is_killed_with_its_descendants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_PATIENCE_S", 0.3)
    begun = tmp_path / "begun"
    # A child with a session of its own, as a rank has, and neither ends when told to.
    stubborn = "import signal, time; [signal.signal(n, signal.SIG_IGN) for n in (2, 15)]"
    child = f"{stubborn}; import pathlib, os; pathlib.Path({str(begun)!r}).write_text(str(os.getpid())); time.sleep(99)"
    parent = (
        f"{stubborn}; import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    )

    def has_begun() -> bool:
        return begun.exists() and begun.read_text() != ""

    with signalled_when(has_begun, signal.SIGTERM), Signals() as signals:
        ended = run_process(python(parent), tmp_path / "log", signals, None)
    assert ended.exit_code == -signal.SIGKILL
    assert still_alive([int(begun.read_text())]) == []


def test_a_point_that_outlives_its_sweep_keeps_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "_PATIENCE_S", 0.0)
    folder, code = SweepFolder(tmp_path), "import sys; sys.stdin.read()"
    with folder.locked() as lock:
        assert lock is not None
        launcher = subprocess.Popen(python(code), stdin=subprocess.PIPE, pass_fds=(lock,))
    try:
        with pytest.raises(StoreError, match="another sweep, or a point of one that was killed"), folder.locked():
            pass
    finally:
        launcher.communicate()
    with folder.locked():
        pass


def test_descendants_are_found() -> None:
    grandchild = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; sys.stdin.read()'])"
    parent = subprocess.Popen(python(grandchild), stdin=subprocess.PIPE)
    try:
        deadline = time.monotonic() + LIMIT_S
        while not (found := descendants(parent.pid)) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert len(found) == 1
        assert descendants(os.getpid()).count(found[0]) == 1
    finally:
        parent.communicate()
    assert descendants(parent.pid) == []


def test_the_time_left_is_estimated_from_repeats_of_the_same_point() -> None:
    one, two = points_of(wanted())
    assert time_left_s([one, two], [], 1.0) is None

    def took(point: Point, seconds: int | None) -> SweepPoint:
        wall_ns = None if seconds is None else seconds * 10**9
        return SweepPoint(
            run=point.name, key=point.key, ranks=point.ranks, repeat=1, scaling=[], arguments=[], wall_ns=wall_ns
        )

    known = [took(one, 10), took(two, 30), took(two, None)]
    assert time_left_s([one.as_repeat(2)], known, 0.0) == 10
    assert time_left_s([one.as_repeat(2), two.as_repeat(2)], known, 5.0) == 45
    (other,) = points_of(wanted(ranks=(8,)))
    assert time_left_s([other], known, 5.0) == 20
