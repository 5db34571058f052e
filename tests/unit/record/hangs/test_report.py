"""What is done about a hang: a run is ended only if a rank was found to keep the others waiting, and if it still is."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
from msgspec.structs import replace

from perfkit.record.hangs.rank_state import write_rank_state
from perfkit.record.hangs.report import HangReporter, diagnose_lost_ranks
from perfkit.record.hangs.step_watch import END_NAME, Hang
from perfkit.storage.hang_log import read_hangs
from perfkit.storage.run_folder import read_failure
from tests.support.hangs.rank_states import call, frame, state
from tests.support.processes.waiting import MOST_S

LOAD = [frame("data.py", 88, "load_batch")]


class EndedError(Exception):
    """The rank would have ended."""


def report(folder: Path, *, fault: bool, resumed: bool = False, paused: bool = False) -> None:
    calls = [call(1, done=True), call(2)]
    write_rank_state(folder, state(0, *calls, world_size=2))
    late = state(1, *calls[: 1 if fault else 2], main=LOAD if fault else None, world_size=2)
    write_rank_state(folder, replace(late, request=0, paused=paused))
    HangReporter(0, "end", dict, dict).report(Hang(folder, 7.0, 0, lambda: resumed))


@pytest.fixture
def _no_exit(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(*_: object, **__: object) -> NoReturn:
        raise EndedError

    monkeypatch.setattr("perfkit.record.hangs.report.exit_now", end)


@pytest.mark.usefixtures("_no_exit")
@pytest.mark.parametrize(
    ("fault", "resumed", "paused"), [(False, False, False), (True, True, False), (True, False, True)]
)
def test_a_run_without_a_fault_or_that_pauses_or_goes_on_is_not_ended(
    tmp_path: Path, fault: bool, resumed: bool, paused: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    report(tmp_path, fault=fault, resumed=resumed, paused=paused)
    assert capsys.readouterr().err.startswith("perfkit: warning: no step has ended for 7.00 s: ")
    (noticed,) = read_hangs(tmp_path)
    assert (noticed.step, noticed.idle_ns) == (1, 7 * 10**9)
    assert ("rank 1" in noticed.headline) == fault
    assert noticed.ranks == [1] * fault
    assert read_failure(tmp_path) is None
    assert not (tmp_path / END_NAME).exists()


@pytest.mark.usefixtures("_no_exit")
def test_a_fault_ends_the_run_on_every_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))  # no UTF-8
    folder.mkdir()
    other = HangReporter(1, "end", dict, dict)
    other.end_with_others(folder, 0)
    with pytest.raises(EndedError):
        report(folder, fault=True)
    assert "rank 1 has not issued it: it is in `load_batch`" in capsys.readouterr().err
    with pytest.raises(EndedError):
        other.end_with_others(folder, 0)


def test_ranks_that_still_run_are_waited_for_before_it_is_said_that_they_are_silent(tmp_path: Path) -> None:
    write_rank_state(tmp_path, state(0, call(1), world_size=2, ended="ended with ValueError"))
    answer = replace(state(1, world_size=2, main=LOAD), request=0)
    late = threading.Timer(0.3, write_rank_state, (tmp_path, answer))
    late.start()
    silent: Callable[[], dict[int, str]] = lambda: {0: "runs", 1: "runs, but wrote nothing"}  # noqa: E731
    found = diagnose_lost_ranks(tmp_path, {0, 1}, 0, absent=dict, silent=silent, wait_s=MOST_S)
    late.join()
    assert found.endswith("rank 1 has not issued it: it is in `load_batch` at data.py:88")


BLOCKED = """
import sys, threading
from perfkit.record.lifecycle.parent_watch import exit_now, write_within
from perfkit.record.messages import print_error

def end():
    write_within(0.3, lambda: print_error("no step has ended"))
    exit_now(7, flush_limit_s=0.3)

threading.Timer(0.5, end).start()
while True:
    getattr(sys, sys.argv[1]).write("x" * 100_000)
"""


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_rank_whose_output_nobody_reads_ends_all_the_same(stream: str) -> None:
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL} | {stream: subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", BLOCKED, stream], **pipes) as blocked:  # type: ignore[call-overload]
        try:
            assert blocked.wait(timeout=MOST_S) == 7
        finally:
            blocked.kill()
