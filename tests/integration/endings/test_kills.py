"""Ranks of a script that are killed at random moments: what they had recorded is readable, nothing is half-written."""

import gzip
import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

import perfkit
from perfkit.storage.run_folder import read_manifest
from tests.support.processes.launching import (
    LIMIT_S,
    MPIEXEC,
    PYTHON,
    descendants_of,
    environment,
    needs_mpiexec,
    still_alive,
)

SCRIPT = """
import os, sys, torch
import torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
told = os.open(f"{sys.argv[1]}/rank{dist.get_rank()}", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1_000_000):
    optimizer.zero_grad()
    model(torch.ones(2, 8)).square().mean().backward()
    optimizer.step()
    os.write(told, b"%d\\n" % (os.getpid() if step == 0 else step))
"""
OPTIONS = ["--monitor", "--no-report", "--schedule", "wait=20,warmup=1,active=2,repeat=500"]

LAUNCHERS = {"n": PYTHON, "mpiexec": [*MPIEXEC, *PYTHON]}


def told(folder: Path, rank: int) -> list[int]:
    """Return the pid of a rank and the steps that it has completed since; empty before its first step has ended."""
    path = folder / f"rank{rank}"
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow  # runs of two ranks; of a loop of its own, `test_monitor` kills ten
@pytest.mark.parametrize(("launcher", "killed"), [("n", 1), pytest.param("mpiexec", 0, marks=needs_mpiexec)])
def test_a_killed_rank_leaves_all_but_its_last_step_and_nothing_half_written(
    launcher: str, killed: int, tmp_path: Path
) -> None:
    script = tmp_path / "trains.py"
    script.write_text(SCRIPT)
    chance = random.Random(launcher)  # noqa: S311  no secret
    told_of = tmp_path / "told"
    told_of.mkdir()
    run = ["run", str(script), *OPTIONS, "--trace-dir", str(tmp_path), "--name", "run"]
    command = [*LAUNCHERS[launcher], *run, *(["-n", "2"] if launcher == "n" else []), "--", str(told_of)]
    job = subprocess.Popen(command, env=environment(), stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + LIMIT_S
    while not told(told_of, killed):
        assert time.monotonic() < deadline
        assert job.poll() is None
        time.sleep(0.05)
    time.sleep(chance.uniform(0, 2))
    processes = descendants_of(job.pid)
    os.kill(told(told_of, killed)[0], signal.SIGKILL)
    assert job.wait(LIMIT_S) != 0
    assert still_alive(processes) == []
    check_run(tmp_path / "run", told_of)
    failure = read_manifest(tmp_path / "run").failure
    if launcher != "mpiexec":  # which kills the other rank at once: it can record nothing
        assert failure is not None
        assert failure.rank == killed


def check_run(run: Path, folder: Path) -> None:
    """Check what a run has left, against the steps that its ranks have told of."""
    steps = perfkit.steps(run)
    for rank in range(2):
        recorded = int(steps.loc[steps["rank"] == rank, "steps"].sum())
        assert len(told(folder, rank)) - 1 <= recorded <= len(told(folder, rank)) + 1
    for path in run.glob("[!.]*.json"):
        json.loads(path.read_bytes())
    for path in run.glob("[!.]*.json.gz"):
        json.loads(gzip.decompress(path.read_bytes()))
