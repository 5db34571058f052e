"""What the operating system shows of ranks that write nothing: real processes that are stopped, killed, or run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfkit.record import process_stat
from perfkit.record.process_stat import (
    ENDED,
    SILENT,
    STATE,
    STOPPED,
    absent_ranks,
    is_gone,
    kill_ranks,
    process_identity,
    silent_ranks,
    stat_fields,
)
from perfkit.record.script.rank_marks import joined_processes, mark_joined
from tests.support.processes.waiting import MOST_S, wait_until


def test_stopped_ended_and_running_ranks_are_told_apart() -> None:
    sleeps = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(3)]
    _, stopped, killed = sleeps
    try:
        stopped.send_signal(signal.SIGSTOP)
        killed.kill()
        wait_until(lambda: (stat_fields(stopped.pid)[STATE], stat_fields(killed.pid)[STATE]) == ("T", "Z"))
        processes = {rank: process_identity(each.pid) for rank, each in enumerate(sleeps)}
        processes[3] = processes[0]._replace(host="another host")
        assert absent_ranks(processes) == {1: STOPPED, 2: ENDED}
        assert silent_ranks(processes) == {0: SILENT, 1: STOPPED, 2: ENDED}
        killed.wait()
        assert absent_ranks(processes)[2] == ENDED
    finally:
        for each in sleeps:
            each.kill()
            each.wait()


def test_another_host_of_the_same_name_is_not_taken_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as there:
        there.setattr(process_stat, "boot_id", lambda: "another")
        place = process_identity().host
    ended = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(ended, 0)
    assert not is_gone(place, ended, "")
    assert is_gone(process_identity().host, ended, "")


def test_a_process_that_is_about_to_close_its_connections_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = stat_fields(os.getpid())
    assert not is_gone(*process_identity())
    fields[6] = str(int(fields[6]) | 0x4)
    monkeypatch.setattr(process_stat, "stat_fields", lambda _: fields)
    assert is_gone(*process_identity())


def test_a_process_that_has_got_the_pid_of_a_rank_is_left_alone(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        try:
            mark_joined(tmp_path, 1, pid=other.pid)
            processes = joined_processes(tmp_path)
            assert absent_ranks(processes) == {}
            earlier = {1: processes[1]._replace(started="1")}  # as if it had started with the system
            assert absent_ranks(earlier) == {1: ENDED}
            kill_ranks(earlier, [1])
            time.sleep(0.2)
            assert other.poll() is None
            kill_ranks(processes, [1])
            assert other.wait(MOST_S) == -signal.SIGKILL
        finally:
            other.kill()


def test_of_a_pid_that_is_none_it_is_not_known_that_it_is_gone() -> None:
    place = process_identity().host
    assert not is_gone(place, 1 << 70, "")
    assert not is_gone(place, 1 << 31, "1")


def test_a_name_that_is_cut_within_a_character_does_not_matter() -> None:
    rename = "open('/proc/self/comm', 'wb').write('entrenamiento-\u00fa'.encode()[:15]); print(flush=True); input()"
    command = [sys.executable, "-c", rename]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert absent_ranks({0: process_identity(process.pid)}) == {}
        process.kill()
