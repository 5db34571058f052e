"""`perfkit sweep` with real runs: interrupted sweeps resume, failed points are marked, no process is left."""

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

import msgspec
import pytest

import perfkit
from perfkit.records.sweep import Sweep, SweepAnswer
from perfkit.storage.run_folder import read_manifest
from tests.support.processes.launching import (
    LIMIT_S,
    PYTHON,
    descendants_of,
    execute,
    needs_mpiexec,
    start,
    still_alive,
)

SCRIPTS = Path(__file__).parent / "scripts"
GPT = ["gpt", "--batch-size", "4", "--samples", "256"]
QUICK, LONG = (f"rank=1,phase=backward,delay={delay}" for delay in ("1ms", "150ms"))


def sweep(folder: Path, *arguments: str) -> list[str]:
    return [*PYTHON, "sweep", "gpt", "--trace-dir", str(folder), *arguments]


def states(folder: Path) -> list[str]:
    return [point.state for point in msgspec.json.decode((folder / "sweep.json").read_bytes(), type=Sweep).points]


def test_a_dry_run_prints_the_commands_and_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    options = ["--ranks", "1,3", "--launcher", "perfkit", "--vary", "compile=false,true", "--dry-run"]
    done = execute(sweep(folder, *options, "--", "--steps", "6"))
    assert done.returncode == 0, done.stderr
    commands = [shlex.split(line) for line in done.stdout.splitlines()]
    assert [command[5] for command in commands] == ["1", "3", "1", "3"]
    given = ["run", "-n", "1", "gpt", "--steps", "6", "--source=memory", "--no-compile", "--trace-dir", str(folder)]
    assert commands[0][3:-3] == given
    assert commands[0][-3:-1] == ["--no-report", "--name"]
    assert not folder.exists()
    if (cores := len(os.sched_getaffinity(0))) < 3:
        assert f"warning: 3 ranks share {cores} cores" in done.stderr


def test_a_wrong_option_is_refused_once_and_before_anything_starts(tmp_path: Path) -> None:
    done = execute(sweep(tmp_path / "s", "--ranks", "1,2", "--repeat", "3", "--", "--zero", "1"))
    assert done.returncode == 2
    assert done.stderr.splitlines() == ["perfkit: error: --zero needs --dp deepspeed"]
    assert not (tmp_path / "s").exists()


def wait_for_run(process: subprocess.Popen[str], folder: Path, pattern: str) -> Path:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        for path in folder.glob(f"{pattern}/run.json"):
            return path.parent
        time.sleep(0.05)
    raise AssertionError("no run folder")


@needs_mpiexec
@pytest.mark.slow  # runs two points twice
def test_a_sweep_that_is_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    options = ["--ranks", "2", "--vary", f"inject={QUICK};{LONG}", "--", *GPT[1:], "--no-profile", "--steps", "40"]
    process = start(sweep(folder, *options))
    try:
        broken = wait_for_run(process, folder, "*delay=150ms*")
        processes = descendants_of(process.pid)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 130
    assert errors.splitlines()[-1].startswith("perfkit: error: ended by SIGINT: 1 of 2 points ran")
    assert len(processes) >= 4  # the launcher, its proxy, two ranks
    assert still_alive(processes) == []
    assert states(folder) == ["completed", "planned"]
    assert read_manifest(broken).state != "completed"
    (whole,) = (path for path in folder.glob("gpt-*") if path != broken)
    before = (whole / "run.json").read_bytes()

    again = execute(sweep(folder, "--json", *options))

    assert again.returncode == 0, again.stderr
    found = msgspec.json.decode(again.stdout, type=SweepAnswer)
    assert [one.name for one in found.configurations] == [f"2 ranks, inject={given}" for given in (QUICK, LONG)]
    assert found.sentences[0].startswith(f"Fastest: 2 ranks, inject={QUICK}, with ")
    assert "The next on as many ranks is 2 ranks, inject=rank=1,phase=backward,delay=150ms" in found.sentences[1]
    assert "Mainly" not in " ".join(found.sentences)  # nothing was recorded
    assert re.search(r": done in [\d.]+ s, step [\d.]+ ms, loss \d", again.stderr)
    assert "2 points, 1 complete already" in again.stderr
    assert f"1 point failed or was interrupted and runs again; its old folder is in {folder}/.earlier" in again.stderr
    assert states(folder) == ["completed", "completed"]
    assert (whole / "run.json").read_bytes() == before
    assert read_manifest(broken).state == "completed"
    assert [path.name for path in (folder / ".earlier").iterdir()] == [f"{broken.name}.1"]


@pytest.mark.slow  # runs two points under torchrun
def test_a_point_that_fails_is_marked_and_the_others_go_on(tmp_path: Path) -> None:
    options = ["--ranks", "1", "--launcher", "torchrun", "--vary", "backend=nccl,gloo", "--random-order"]
    command = sweep(tmp_path, *options, "--", *GPT[1:], "--steps", "6", "--device", "cpu")
    done = execute(command)
    assert done.returncode == 1
    points = msgspec.json.decode((tmp_path / "sweep.json").read_bytes(), type=Sweep).points
    failed, completed = sorted(points, key=lambda point: point.state, reverse=True)
    assert (failed.state, completed.state) == ("failed", "completed")
    assert "nccl" in str(failed.reason)
    assert completed.wall_ns is not None
    last = done.stderr.splitlines()[-1]
    assert last == f"perfkit: error: 1 of 2 points failed: {failed.run}; see {tmp_path}/sweep.json"

    analysed = execute([*PYTHON, "analyze", str(tmp_path), "-f", "json"])
    assert analysed.returncode == 0, analysed.stderr
    report = msgspec.json.decode(analysed.stdout)
    runs = [run["run"] for run in report["runs"]]
    assert completed.run in runs
    if failed.run not in runs:  # it may have failed before it had a folder, or reported the failure in there
        (finding,) = report["findings"]
        assert finding["code"] == "point_failed"
        assert str(failed.reason) in finding["message"]


@pytest.mark.slow  # runs a script on one rank and on two
def test_a_script_of_ones_own_is_swept_and_scales(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    options = ["--ranks", "1,2", "--trace-dir", str(folder), "--run-options", "--schedule wait=2,warmup=1,active=3"]

    def swept(*more: str) -> list[str]:
        script = str(SCRIPTS / "plain_ddp.py")
        return [*PYTHON, "sweep", script, *options, *more, "--", "--steps", "20", "--width={width}"]

    done = execute(swept("--vary", "width=32"))
    assert done.returncode == 0, done.stderr
    assert states(folder) == ["completed", "completed"]
    again = execute(swept("--vary", "width=32,64", "--dry-run"))
    assert again.returncode == 0, again.stderr
    missing = [shlex.split(line) for line in again.stdout.splitlines()]
    assert [line[-1] for line in missing] == ["--width=64", "--width=64"]

    report = perfkit.analyze(folder)
    assert report.multi_run is not None
    (series,) = report.multi_run.series
    assert (series.name, series.batch_size) == ("plain_ddp weak", 16)
    assert [point.world_size for point in series.points] == [1, 2]
    assert "samples per step are inferred from the DataLoader" in series.notes
    for run in report.runs:
        assert run.throughput is not None
        assert run.throughput.samples_per_step == 16 * run.world_size


@needs_mpiexec
@pytest.mark.slow  # runs a point from a job script
def test_a_job_script_runs_its_points(tmp_path: Path) -> None:
    hosts, folder = tmp_path / "hosts", tmp_path / "a folder"
    hosts.write_text("localhost\n")
    options = ["--ranks", "2", "--emit", "hostfile", "--ranks-per-node", "2", "--hostfile", str(hosts)]
    command = sweep(folder, *options, "--", *GPT[1:], "--no-profile", "--steps", "3")
    written = execute(command)
    assert written.returncode == 0, written.stderr
    assert states(folder) == ["planned"]
    done = execute(shlex.split(written.stdout))
    assert done.returncode == 0, done.stderr
    again = execute(command)
    assert again.stdout == ""
    assert "1 point, 1 complete already" in again.stderr
    assert states(folder) == ["completed"]
