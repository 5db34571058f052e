"""The watchdog in a separate process: what it writes into the folder of a run whose ranks have ended."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from perfkit.base.atomic_write import private_folder
from perfkit.base.process import child_python
from perfkit.record.lifecycle.watchdog import _close
from perfkit.records.manifest import Failure, RunManifest
from perfkit.storage.run_folder import claim_failure, read_manifest, write_manifest
from tests.support.processes.launching import LIMIT_S
from tests.support.processes.waiting import wait_until
from tests.unit.storage.test_run_folder import MANIFEST

needs_pidfds = pytest.mark.skipif(sys.platform != "linux", reason="the watchdog needs Linux")


@contextmanager
def two_ranks() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Start two processes that never end by themselves."""
    ranks = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]
    try:
        yield ranks
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def watch(folder: Path, ranks: list[subprocess.Popen[bytes]]) -> None:
    """Run the watchdog as a run does: in a separate process, with a stdin that is never written to."""
    numbers = [f"{number}:{rank.pid}" for number, rank in enumerate(ranks)]
    command = [*child_python("perfkit.record.lifecycle.watchdog", "main"), str(folder), *numbers]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


def on_disk(folder: Path) -> RunManifest:
    (folder / "failure.json").unlink()
    return read_manifest(folder)


@needs_pidfds
def test_a_rank_that_was_killed_while_it_failed_leaves_a_whole_manifest(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    (tmp_path / "rank1.json.gz").write_bytes(b"12")
    claim_failure(tmp_path, Failure(rank=1, message="boom"))
    with two_ranks() as ranks:
        for rank in ranks:
            rank.kill()
        watch(tmp_path, ranks)
    manifest = on_disk(tmp_path)
    assert (manifest.state, manifest.failure) == ("failed", Failure(rank=1, message="boom"))
    assert manifest.finished_at is not None
    assert [file.path for file in manifest.files] == ["rank1.json.gz"]


@needs_pidfds
def test_what_a_rank_of_another_host_may_still_write_is_left_to_it(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    claim_failure(tmp_path, Failure(rank=7, message="boom"))
    with two_ranks() as ranks:
        for rank in ranks:
            rank.kill()
        watch(tmp_path, ranks)
    assert on_disk(tmp_path).state == "running"


@needs_pidfds
def test_ranks_that_hang_end_though_nothing_can_be_written(tmp_path: Path) -> None:
    with two_ranks() as ranks:
        ranks[1].kill()
        watch(tmp_path, ranks)
        assert ranks[0].wait(timeout=LIMIT_S) != 0


def test_what_a_killed_rank_was_writing_is_removed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    with private_folder(tmp_path / "rank1.json.gz") as folder:
        (folder / "rank1.json").touch()
        (tmp_path / ".rank1.json.gz.0123.tmp").touch()
        (tmp_path / ".rank1.link").symlink_to(tmp_path / "other")
        _close(tmp_path, [1])
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["kept"]


_RANK = """
import subprocess, sys
from perfkit.base.process import child_python
ranks = [subprocess.Popen(["sleep", "1000"], stdout=subprocess.DEVNULL) for _ in range(2)]
numbers = [f"{number}:{rank.pid}" for number, rank in enumerate(ranks)]
command = [*child_python("perfkit.record.lifecycle.watchdog", "main"), sys.argv[1], *numbers]
watchdog = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
print(watchdog.pid, *(rank.pid for rank in ranks), flush=True)
watchdog.wait()
"""


@needs_pidfds
@pytest.mark.parametrize(
    ("killed", "expected"),
    [("launcher", "was ended after its launcher, which ended first"), ("rank", "(see the system log: out of memory?)")],
)
def test_a_rank_whose_launcher_ended_first_is_not_said_to_have_been_killed(
    tmp_path: Path, killed: str, expected: str
) -> None:
    """As where a terminal is closed: mpiexec ends by SIGHUP, and its daemon kills the ranks."""
    folder, launcher = tmp_path / "run", tmp_path / "mpiexec"
    folder.mkdir()
    write_manifest(folder, MANIFEST)
    launcher.write_text('#!/bin/sh\n"$@"\nexit 1\n')
    launcher.chmod(0o755)
    command = [str(launcher), sys.executable, "-c", _RANK, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        watchdog, *ranks = map(int, started.stdout.readline().split())
        wait_until(lambda: _pidfds(watchdog) == 3)  # of the launcher and of both ranks
        for number in [started.pid, *ranks] if killed == "launcher" else [ranks[0], started.pid, ranks[1]]:
            os.kill(number, signal.SIGKILL)
            time.sleep(1)  # so that the watchdog sees one after the other
        wait_until(lambda: not _pidfds(watchdog))
    failure = read_manifest(folder).failure
    assert failure is not None
    assert expected in failure.message


def _pidfds(pid: int) -> int:
    """Return how many processes another one watches; none once it has ended."""
    found = 0
    with suppress(OSError):
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            found += "[pidfd]" in os.readlink(descriptor)
    return found
