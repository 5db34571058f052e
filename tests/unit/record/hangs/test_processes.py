"""What the operating system shows of ranks that write nothing: real processes that are stopped, killed, or run."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from perfkit.record.hangs import processes
from perfkit.record.hangs.processes import (
    ENDED,
    SILENT,
    STOPPED,
    absent_ranks,
    is_gone,
    kill_ranks,
    note_starts,
    silent_ranks,
)
from perfkit.record.lifecycle import watchdog
from perfkit.record.lifecycle.watchdog import process_identity
from perfkit.record.process_stat import STATE, stat_fields
from perfkit.record.script.rank_marks import joined_processes, mark_joined
from tests.support.processes.waiting import MOST_S, wait_until


def test_stopped_ended_and_running_ranks_are_told_apart() -> None:
    place, _ = process_identity()
    sleeps = [subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) for _ in range(3)]
    running, stopped, killed = sleeps
    try:
        stopped.send_signal(signal.SIGSTOP)
        killed.kill()
        wait_until(lambda: (stat_fields(stopped.pid)[STATE], stat_fields(killed.pid)[STATE]) == ("T", "Z"))
        places = {rank: (place, each.pid) for rank, each in enumerate(sleeps)} | {3: ("another host", running.pid)}
        assert absent_ranks(places) == {1: STOPPED, 2: ENDED}
        assert silent_ranks(places) == {0: SILENT, 1: STOPPED, 2: ENDED}
        killed.wait()
        assert absent_ranks(places)[2] == ENDED
    finally:
        for each in sleeps:
            each.kill()
            each.wait()


def test_another_host_of_the_same_name_is_not_taken_for_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as there:
        there.setattr(watchdog, "_boot_id", lambda: "another")
        place, _ = process_identity()
    ended = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(ended, 0)
    assert not is_gone(place, ended, "")
    assert is_gone(process_identity()[0], ended, "")


def test_a_process_that_has_got_the_pid_of_a_rank_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    place, _ = process_identity()
    monkeypatch.setattr(processes, "_started", {})
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        try:
            places = {1: (place, other.pid)}
            note_starts(places)
            assert absent_ranks(places) == {}
            processes._started[other.pid] = "1"  # as if the rank with this pid had started with the system
            assert absent_ranks(places) == {1: ENDED}
            kill_ranks(places, [1])
            time.sleep(0.2)
            assert other.poll() is None
            note_starts(places)
            kill_ranks(places, [1])
            assert other.wait(MOST_S) == -signal.SIGKILL
        finally:
            other.kill()


def test_of_a_pid_that_is_none_it_is_not_known_that_it_is_gone() -> None:
    place, _ = process_identity()
    assert not is_gone(place, 1 << 70, "")
    assert not is_gone(place, 1 << 31, "1")


def test_a_name_that_is_cut_within_a_character_does_not_matter() -> None:
    rename = "open('/proc/self/comm', 'wb').write('entrenamiento-\u00fa'.encode()[:15]); print(flush=True); input()"
    command = [sys.executable, "-c", rename]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        places = {0: (process_identity()[0], process.pid)}
        note_starts(places)
        assert absent_ranks(places) == {}
        process.kill()


def test_a_process_that_has_got_the_pid_of_a_scripts_rank_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_started", {})
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        try:
            mark_joined(tmp_path, 1, pid=other.pid)
            assert absent_ranks(joined_processes(tmp_path)) == {}
            mark = tmp_path / ".rank1.process"
            started = msgspec.json.decode(mark.read_bytes())["started"]
            mark.write_bytes(mark.read_bytes().replace(f'"{started}"'.encode(), b'"1"'))
            places = joined_processes(tmp_path)
            assert absent_ranks(places) == {1: ENDED}
            kill_ranks(places, [1])
            time.sleep(0.2)
            assert other.poll() is None
        finally:
            other.kill()
