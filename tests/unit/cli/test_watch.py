"""`perfkit watch` as a command."""

import os
import pty
import select
import sys
import time
from pathlib import Path

import pytest

from tests.support.monitor.made_runs import own_times, write_run
from tests.support.processes.command import run_command
from tests.support.processes.waiting import MOST_S


def test_one_frame_of_several_runs(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name, own_times(2, 60)) for name in ("first", "second")]
    shown = run_command("watch", "--once", *folders)
    assert shown.returncode == 0, shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("first  running  2 ranks  step 59")
    assert sum(line.startswith("second  running") for line in lines) == 1
    assert "\x1b" not in shown.stdout


def test_of_a_folder_of_runs_the_latest_is_shown(tmp_path: Path) -> None:
    older, newer = (write_run(tmp_path / name, own_times(1, 60)) for name in ("b", "a"))
    os.utime(older / "rank0.steps", (1, 1))
    assert run_command("watch", "--once", tmp_path).stdout.startswith("a  ")
    os.utime(newer / "rank0.steps", (0, 0))
    assert run_command("watch", "--once", tmp_path).stdout.startswith("b  ")


def test_a_live_view_needs_a_terminal(tmp_path: Path) -> None:
    shown = run_command("watch", tmp_path)
    assert shown.returncode != 0
    assert "the live view needs a terminal: --once prints one frame" in shown.stderr


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "no such folder" in run_command("watch", "--once", tmp_path / "nothing").stderr
    (tmp_path / "file").touch()
    assert "not a folder" in run_command("watch", "--once", tmp_path / "file").stderr
    assert "'age' is not one of" in run_command("watch", "--once", "--sort", "age", tmp_path).stderr


@pytest.mark.slow
@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_a_live_view_ends_by_a_key(tmp_path: Path, key: bytes) -> None:
    folder = write_run(tmp_path / "run", own_times(2, 60))
    process, terminal = pty.fork()
    if process == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "perfkit", "watch", str(folder)])  # noqa: S606
    seen = _read_until(terminal, b"q quit")
    os.write(terminal, b"s")
    seen += _read_until(terminal, b"sorted by: data")
    os.write(terminal, key)
    _read_until(terminal, b"\x1b[?1049l")
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"nothing unusual in the last 60 steps" in seen


def _read_until(terminal: int, text: bytes) -> bytes:
    """Return what is written to a terminal up to a text, which must come."""
    seen, end = b"", time.monotonic() + MOST_S
    while text not in seen and time.monotonic() < end:
        if select.select([terminal], [], [], 1)[0]:
            try:
                seen += os.read(terminal, 65_536)
            except OSError:  # the other end is closed
                break
    assert text in seen
    return seen
