"""The stack of a process in which a call holds Python's lock, so that it cannot write anything itself."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from perfkit.record.hangs.held_lock import ask_for_stack
from tests.support.processes.waiting import wait_until

HOLDS: str = """
import re, signal, sys
from perfkit.record.hangs.held_lock import _SIGNAL, write_stack_on_signal
def backtrack():
    re.match(r"(a+)+$", "a" * 60 + "b")
if sys.argv[1] == "taken":
    signal.signal(_SIGNAL, lambda *_: None)
if sys.argv[1] != "unasked":
    write_stack_on_signal()
if sys.argv[1] == "reset":
    signal.signal(_SIGNAL, signal.SIG_DFL)
print("ready", flush=True)
backtrack()
"""


def begin(folder: Path, how: str) -> subprocess.Popen[str]:
    (folder / "holds.py").write_text(HOLDS, encoding="utf-8")
    process = subprocess.Popen([sys.executable, folder / "holds.py", how], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.skipif(not hasattr(signal, "SIGRTMAX") or not Path("/proc/self/fd").exists(), reason="needs Linux")
def test_the_line_is_had_from_a_process_that_cannot_answer(tmp_path: Path) -> None:
    with begin(tmp_path, "") as process:
        try:
            wait_until(lambda: any(frame.function == "backtrack" for frame in ask_for_stack(process.pid)))
            frames = ask_for_stack(process.pid)  # again: the file has two stacks by now
            (place,) = [frame for frame in frames if frame.function == "backtrack"]
            assert (Path(place.file).name, place.line) == ("holds.py", 5)
            assert frames[-1].function == "<module>"
            assert process.poll() is None
        finally:
            process.kill()


@pytest.mark.skipif(not hasattr(signal, "SIGRTMAX") or not Path("/proc/self/fd").exists(), reason="needs Linux")
@pytest.mark.parametrize("how", ["unasked", "taken", "reset"])
def test_no_signal_is_sent_to_a_process_that_does_not_expect_it(tmp_path: Path, how: str) -> None:
    with begin(tmp_path, how) as process:
        try:
            assert ask_for_stack(process.pid) == []
            assert process.poll() is None
        finally:
            process.kill()
    assert process.returncode == -signal.SIGKILL
    assert ask_for_stack(process.pid) == []
