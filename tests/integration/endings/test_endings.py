"""Runs that end early: nothing is left behind, and one line reports why."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfkit.storage.run_folder import read_manifest
from tests.support.processes.launching import (
    LIMIT_S,
    PYTHON,
    ROOT,
    SHORT,
    TINY,
    children_of,
    descendants_of,
    environment,
    execute,
    start,
    still_alive,
    wait_for_folder,
    wait_for_library,
    wait_for_steps,
)

SCRIPTS = Path(__file__).parents[1] / "scripts"
TRAIN = str(SCRIPTS / "train.py")
LEARNER = [*PYTHON, "run", str(SCRIPTS / "learner.py"), "-n", "2"]
ENDLESS = [*PYTHON, "run", *TINY["gpt"], "--no-profile", "--steps", "100000", "-n", "2"]


def messages(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if not line.startswith("step ")]


@pytest.mark.slow  # waits 20 s for its limit; of rank 1 that is stopped, see test_failures
def test_rank_0_that_hangs_is_named(tmp_path: Path) -> None:
    # It reports every tenth of its steps.
    parent = start([*ENDLESS, "--steps", "3000", "--timeout", "20s", "--trace-dir", str(tmp_path)])
    try:
        folder = wait_for_folder(tmp_path)
        wait_for_steps(parent)
        os.kill(children_of(parent.pid)[0], signal.SIGSTOP)
        _, errors = parent.communicate(timeout=LIMIT_S)
    finally:
        parent.kill()
    (line,) = messages(errors)
    assert line.startswith("perfkit: error: rank 1: waited --timeout 20s for a collective in step ")
    assert "and rank 0 did not join it" in line
    manifest = read_manifest(folder)
    assert manifest.state == "failed"
    assert (manifest.batch_size, manifest.step_kinds[:2]) == (4, ["cold", "plain"])
    assert manifest.parameters is not None
    assert len(manifest.ranks[0].step_wall_ns) == len(manifest.step_kinds)


@pytest.mark.slow  # starts loader workers, each of which imports torch; `make test` ends runs without workers
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_loader_workers_end_with_the_run_and_quietly(number: signal.Signals, tmp_path: Path) -> None:
    parent = start([*ENDLESS, "--num-workers", "1", "--trace-dir", str(tmp_path)])
    try:
        folder = wait_for_folder(tmp_path)
        deadline = time.monotonic() + LIMIT_S
        # Two ranks with server, tracker and worker each, and a watchdog.
        while len(descendants_of(parent.pid)) < 9 and time.monotonic() < deadline:
            time.sleep(0.2)
        time.sleep(1)  # into the steps on most machines; before them the outcome is the same
        processes = descendants_of(parent.pid)
        assert len(processes) == 9
        parent.send_signal(number)
        _, errors = parent.communicate(timeout=LIMIT_S)
    finally:
        parent.kill()
    assert still_alive(processes) == []
    (line,) = messages(errors)
    assert parent.returncode != 0
    assert "interrupted" in line or number == signal.SIGKILL
    assert read_manifest(folder).state == "failed"


SLOW_WRITER = """
import sys, time
import perfkit_workloads.data.files as files
write = files.write_slabs
def slow(*arguments):
    time.sleep(25)
    return write(*arguments)
files.write_slabs = slow
import perfkit_workloads.data.safetensors
perfkit_workloads.data.safetensors.write_slabs = slow
from perfkit.__main__ import main
sys.exit(main())
"""


@pytest.mark.slow  # must take longer than a busy machine needs to start both ranks
def test_writing_the_data_may_take_longer_than_a_collective(tmp_path: Path) -> None:
    options = [*TINY["gpt"], "--no-profile", "--steps", "2", "--timeout", "20s", "--source", "safetensors"]
    command = [sys.executable, "-c", SLOW_WRITER, "run", *options, "--trace-dir", str(tmp_path)]
    place = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "PERFKIT_RENDEZVOUS": str(tmp_path / "rendezvous")}
    ranks = [
        subprocess.Popen(
            command,
            env=environment() | place | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
        )
        for rank in range(2)
    ]
    try:
        # Not communicate(): a rank takes a closed stdin for the death of its parent.
        assert [rank.wait(timeout=LIMIT_S) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()


@pytest.mark.parametrize("delay_s", [0, 0.5])
def test_an_interrupt_while_torch_is_imported_is_one_line(delay_s: float, tmp_path: Path) -> None:
    parent = start([*ENDLESS, "--trace-dir", str(tmp_path)])
    try:
        wait_for_library(parent.pid, "libtorch")
        time.sleep(delay_s)
        parent.send_signal(signal.SIGINT)
        _, errors = parent.communicate(timeout=LIMIT_S)
    finally:
        parent.kill()
    assert parent.returncode == 130
    assert messages(errors) == ["perfkit: error: interrupted"]


def test_a_script_that_ends_at_once_leaves_a_completed_run(tmp_path: Path) -> None:
    command = [*PYTHON, "run", TRAIN, *SHORT, "--name", "gone", "--trace-dir", str(tmp_path), "--", "--then", "vanish"]
    assert execute(command, stub_torch=True).returncode == 0
    manifest = read_manifest(tmp_path / "gone")
    assert manifest.state == "completed"
    assert len(manifest.ranks[0].step_wall_ns) == len(manifest.step_kinds) == 8
    assert {path.name for path in (tmp_path / "gone").iterdir()} == {
        *("run.json", "rank0.json.gz", "rank0.key_averages.txt"),
    }


@pytest.mark.parametrize("then", ["vanish", "well"])
def test_a_script_whose_folder_is_gone_at_its_end_says_so_in_one_line(then: str, tmp_path: Path) -> None:
    script, folder = tmp_path / "removes.py", tmp_path / "gone"
    script.write_text(
        f"import os, runpy, shutil, sys\nsys.path.insert(0, {str(SCRIPTS)!r})\n"
        f"runpy.run_path({TRAIN!r}, run_name='__main__')\n"
        f"shutil.rmtree({str(folder)!r})\n{'os._exit(0)' if then == 'vanish' else ''}\n"
    )
    command = [*PYTHON, "run", str(script), *SHORT, "--name", "gone", "--trace-dir", str(tmp_path)]
    done = execute(command, stub_torch=True)
    assert done.returncode == 0
    (line,) = messages(done.stderr)
    assert line.startswith(f"perfkit: error: cannot write {folder}")
    assert line.endswith(f"what is recorded of {script} is incomplete")


@pytest.mark.slow  # imports torch three times; `make test` has children of one rank
@pytest.mark.parametrize("how", ["well", "fail"])
def test_ranks_that_a_script_spawns_are_recorded_each(how: str, tmp_path: Path) -> None:
    script = str(SCRIPTS / "spawns_ranks.py")
    done = execute([*PYTHON, "run", script, "--name", "own", "--trace-dir", str(tmp_path), "--", how])
    manifest = read_manifest(tmp_path / "own")
    assert manifest.backend == "gloo"
    if how == "well":
        assert (done.returncode, done.stdout) == (0, "trained\n"), done.stderr
        assert (manifest.state, [rank.rank for rank in manifest.ranks]) == ("completed", [0, 1])
        assert done.stderr.count(f"10 steps, in {tmp_path / 'own'}\n") == 1
    else:
        assert done.returncode == 1
        assert manifest.failure is not None
        assert (manifest.failure.rank, manifest.failure.message) == (1, "ValueError: after training")
    assert [path.name for path in (tmp_path / "own").iterdir() if path.name.startswith(".")] == []


@pytest.mark.slow  # imports torch twice; the unit tests of the ranks of a script have the waits
@pytest.mark.flaky(reruns=2)  # other programs on the machine change wall times
def test_a_rank_that_never_steps_delays_no_other(tmp_path: Path) -> None:
    # Within the 30 s that the script's collectives wait, and with the line that names the folder.
    done = execute([*LEARNER, "--name", "l", "--trace-dir", str(tmp_path), "--", "0", "0"])
    assert done.returncode == 0, done.stderr
    assert f"10 steps, in {tmp_path / 'l'}\n" in done.stderr
    manifest = read_manifest(tmp_path / "l")
    assert (manifest.state, [rank.rank for rank in manifest.ranks]) == ("completed", [0])
    walls_ns = manifest.ranks[0].step_wall_ns
    assert max(walls_ns[1:]) < 2.5e9
    assert {path.name for path in (tmp_path / "l").iterdir()} == {
        *("run.json", "rank0.json.gz", "rank0.key_averages.txt"),
    }


@pytest.mark.slow  # the rank that never steps goes on for seconds
def test_a_rank_that_never_steps_and_ends_last_names_the_folder(tmp_path: Path) -> None:
    # The watch for hangs lets that rank begin the run as well, so that the run is over when it ends.
    options = ["--hang-after", "2s", "--no-report", "--name", "l", "--trace-dir", str(tmp_path)]
    done = execute([*LEARNER, *options, "--", "1", "8"])
    assert done.returncode == 0, done.stderr
    named, unnamed = sorted(
        line.split("learner.py: ")[1] for line in done.stderr.splitlines() if "learner.py: " in line
    )
    assert named == f"10 steps; to see where the time went: perfkit analyze {tmp_path / 'l'}"
    assert unnamed.startswith("rank 0: no step of an optimizer")
    assert read_manifest(tmp_path / "l").state == "completed"
