"""The first cause of a script's failure: what ended a peer comes before the connection that was lost by that."""

import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from perfkit.errors import RunError
from perfkit.record.endings import TerminatedError
from perfkit.record.script.hang_watch import cause_of_end, find_first_cause
from perfkit.record.script.manifest_assembly import write_exit_record
from perfkit.record.script.rank_marks import joined_processes, mark_joined
from perfkit.records.manifest import Failure
from perfkit.storage.run_folder import claim_failure
from tests.unit.record.script.test_manifest_assembly import record

LOST = RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:26527")


@pytest.fixture
def ended() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_rank_that_left_with_exit_code_0_comes_first(tmp_path: Path) -> None:
    write_exit_record(tmp_path, record(1), ["cold"])
    cause = find_first_cause(tmp_path, 0, LOST)
    assert cause.rank == 1
    assert str(cause.error) == "ended with exit code 0 after 0 timed steps, before rank 0 lost its connection"


def test_a_rank_that_left_with_another_exit_code_comes_before_those_with_0(tmp_path: Path) -> None:
    write_exit_record(tmp_path, record(1), ["cold"])
    write_exit_record(tmp_path, record(2), ["cold"], code=3)
    assert find_first_cause(tmp_path, 0, LOST).rank == 2
    # Of another host, so that its process is not known.
    assert cause_of_end(tmp_path, 0, TerminatedError("ended by SIGTERM")).rank == 2


@pytest.mark.parametrize(("code", "rank"), [(0, 0), (3, 1)])
def test_a_rank_that_ended_well_is_no_reason_to_end_another(code: int, rank: int, tmp_path: Path, ended: int) -> None:
    mark_joined(tmp_path, 1, pid=ended)
    write_exit_record(tmp_path, record(1), ["cold"], code=code)
    cause = cause_of_end(tmp_path, 0, TerminatedError("ended by SIGTERM"))
    assert cause.rank == rank
    assert code == 0 or str(cause.error) == "ended with exit code 3, before rank 0 was ended by SIGTERM"


def test_a_rank_whose_process_is_gone_comes_first(tmp_path: Path, ended: int) -> None:
    mark_joined(tmp_path, 1)
    mark_joined(tmp_path, 0, pid=ended)
    cause = find_first_cause(tmp_path, 1, LOST)
    assert cause.rank == 0
    assert "was killed, or ended without a message" in str(cause.error)


def test_a_rank_whose_pid_another_process_has_got_is_gone(tmp_path: Path) -> None:
    mark_joined(tmp_path, 0)
    mark = tmp_path / ".rank0.process"
    started = joined_processes(tmp_path)[0].started
    assert started.isdecimal()
    assert find_first_cause(tmp_path, 1, LOST).rank == 1
    mark.write_bytes(mark.read_bytes().replace(started.encode(), b"1"))
    assert find_first_cause(tmp_path, 1, LOST).rank == 0


def test_a_rank_that_is_gone_before_a_launcher_ends_the_others_comes_first(tmp_path: Path, ended: int) -> None:
    error = TerminatedError("ended by SIGTERM")
    mark_joined(tmp_path, 1)
    mark_joined(tmp_path, 2)  # this process, which runs
    for find in (find_first_cause, cause_of_end):
        assert find(tmp_path, 1, error)[:2] == (1, error)
    mark_joined(tmp_path, 0, pid=ended)
    for find in (find_first_cause, cause_of_end):
        cause = find(tmp_path, 1, error)
        assert (cause.rank, str(cause.error).endswith("before rank 1 was ended by SIGTERM")) == (0, True)
    another = RunError("ended")
    assert cause_of_end(tmp_path, 1, another)[:2] == (1, another)


def test_another_error_is_its_own_cause(tmp_path: Path, ended: int) -> None:
    mark_joined(tmp_path, 0, pid=ended)
    write_exit_record(tmp_path, record(2), ["cold"])
    error = ValueError("the loss is not a number")
    assert find_first_cause(tmp_path, 1, error)[:2] == (1, error)


def test_nobody_is_accused_while_all_ranks_run_or_only_their_schedule_is_over(tmp_path: Path) -> None:
    mark_joined(tmp_path, 0)  # this process
    write_exit_record(tmp_path, record(0), ["cold"], ended=False)
    assert find_first_cause(tmp_path, 1, LOST)[:2] == (1, LOST)


def test_a_cause_that_is_known_is_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    claim_failure(tmp_path, Failure(rank=2, message="boom"))
    monkeypatch.setattr("perfkit.record.script.hang_watch.time", SimpleNamespace(monotonic=time.monotonic))
    assert find_first_cause(tmp_path, 1, LOST)[:2] == (1, LOST)  # nor does it sleep
