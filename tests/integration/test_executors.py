"""Every executor for real: all give the same report; the cost of a death, a failure or an interrupt."""

import json
import math
import os
import pty
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

import perfkit
from perfkit.base.executors import EXECUTORS, ExecutorOptions, open_executor
from perfkit.errors import WorkerError
from tests.support.processes.launching import (
    BIN,
    LIMIT_S,
    PYTHON,
    alive,
    descendants_of,
    environment,
    execute,
    needs_mpiexec,
    start,
)
from tests.support.traces.many_ranks import copy_sample, make_large, make_ranks

ANALYZE = [*PYTHON, "analyze"]
MPI = [str(BIN / "mpiexec"), "-n", "3", *ANALYZE]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = make_ranks(tmp_path / "run", 4)
    (folder / "rank2.json.gz").write_bytes((folder / "rank2.json.gz").read_bytes()[:1000])
    return folder


class Cluster(NamedTuple):
    address: str
    scheduler: subprocess.Popen[str]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Start a dask scheduler and two workers, each in its own process."""
    address = "tcp://127.0.0.1:"
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0"]
    with subprocess.Popen(
        [*command, "--no-dashboard"], stderr=subprocess.PIPE, text=True, env=environment()
    ) as running:
        assert running.stderr
        line = next(line for line in running.stderr if address in line)
        address += line.split(address)[1].split()[0].strip("'")
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nworkers", "2", "--nthreads", "1"]
        with subprocess.Popen(
            [*worker, "--no-dashboard"], stderr=subprocess.DEVNULL, env=environment(), start_new_session=True
        ) as workers:
            yield Cluster(address, running)
            # A worker without a scheduler may wait for it instead of ending.
            os.killpg(workers.pid, signal.SIGKILL)
        running.kill()


def report_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def command_for(name: str, folder: Path) -> list[str]:
    return [*(MPI if name == "mpi" else ANALYZE), str(folder), "-f", "json", "--no-cache", "--executor", name]


@pytest.mark.slow  # starts a dask cluster, worker processes and ranks: 9 s; each executor has a quick test of its own
@needs_mpiexec
def test_all_executors_give_the_same_bytes(run: Path) -> None:
    reports = {name: report_of(execute(command_for(name, run))) for name in EXECUTORS.builtin}
    assert len(set(reports.values())) == 1
    findings = json.loads(reports["serial"])["runs"][0]["findings"]
    assert "rank2.json.gz" in [finding["file"] for finding in findings]


@pytest.mark.slow  # `make test` has a dask cluster of its own among the four executors
def test_a_running_dask_cluster(run: Path, cluster: Cluster) -> None:
    plain = report_of(execute(command_for("serial", run)))
    assert report_of(execute([*command_for("dask", run), "--scheduler", cluster.address])) == plain


@pytest.mark.slow  # dask waits for its scheduler to return
def test_a_scheduler_that_dies_leaves_nobody_waiting(cluster: Cluster) -> None:
    with open_executor("dask", ExecutorOptions(scheduler=cluster.address)) as pool:
        assert pool.submit(math.factorial, 5).result(LIMIT_S) == 120
        lost = [pool.submit(time.sleep, 600) for _ in range(3)]
        cluster.scheduler.kill()
        assert [type(future.exception(LIMIT_S)) for future in lost] == [WorkerError] * 3
        # At first dask waits for the scheduler to return, later it refuses; either way the future fails.
        assert isinstance(pool.submit(math.factorial, 5).exception(LIMIT_S), WorkerError)
        assert isinstance(pool.submit(math.factorial, 5).exception(LIMIT_S), WorkerError)


@pytest.mark.slow  # dask tries to connect for ten seconds
def test_no_dask_scheduler(run: Path) -> None:
    done = execute([*command_for("dask", run), "--scheduler", "tcp://127.0.0.1:9"])
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("perfkit: error: --scheduler tcp://127.0.0.1:9: no dask scheduler")


def test_an_executor_of_ones_own(run: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        report = perfkit.analyze(run, executor=pool, cache=False)
    assert msgspec.json.encode(report) == msgspec.json.encode(perfkit.analyze(run, executor="serial", cache=False))


def test_a_pool_that_is_broken_is_done_without(run: Path) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        pool.submit(os._exit, 1).exception(60)
        report = perfkit.analyze(run, executor=pool, cache=False)
    assert msgspec.json.encode(report) == msgspec.json.encode(perfkit.analyze(run, executor="serial", cache=False))


class Short(Executor):
    """An executor whose workers always run out of memory."""

    def submit(self, *_: Any, **__: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_exception(MemoryError())
        return future


def test_a_trace_that_memory_was_short_for_is_tried_alone(run: Path) -> None:
    report = perfkit.analyze(run, executor=Short(), cache=False)
    assert msgspec.json.encode(report) == msgspec.json.encode(perfkit.analyze(run, executor="serial", cache=False))


@needs_mpiexec
def test_mpi_starts_by_itself_under_mpiexec_and_reports_once(run: Path) -> None:
    done = execute([*MPI, str(run), "-f", "json", "--no-cache"])
    assert report_of(done) == report_of(execute(command_for("serial", run)))


@needs_mpiexec
def test_a_failure_under_mpi_ends_every_rank(tmp_path: Path) -> None:
    done = execute([*MPI, str(tmp_path / "nothing")])
    assert done.returncode == 1
    assert done.stderr.count("perfkit: error:") == 1


def test_mpi_alone_says_how(run: Path) -> None:
    done = execute([*ANALYZE, str(run), "--executor", "mpi"])
    assert done.returncode == 1
    assert "mpiexec -n 16" in done.stderr


# ---- deaths --------------------------------------------------------------------------------------------------------


def children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture
def one_too_large(tmp_path: Path) -> Path:
    """Write a run whose rank 1 takes many times the CPU time of all that reading the other takes."""
    folder = copy_sample(tmp_path / "run", 1)
    make_large(folder / "rank1.json.gz", 2000)
    return folder


@pytest.mark.slow  # a process must reach its CPU limit
@pytest.mark.parametrize(
    "name",
    ["processes", "dask", pytest.param("mpi", marks=needs_mpiexec)],
)
def test_a_worker_that_is_killed_costs_its_rank(one_too_large: Path, name: str, tmp_path: Path) -> None:
    before_s = children_cpu_s()
    report_of(execute(command_for(name, copy_sample(tmp_path / "small", 1))))
    limit_s = max(6, math.ceil(2 * (children_cpu_s() - before_s)))
    done = subprocess.run(
        command_for(name, one_too_large),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s)),
        check=False,
    )
    run = json.loads(report_of(done))["runs"][0]
    assert [rank["rank"] for rank in run["ranks"]] == [0]
    [lost] = [finding for finding in run["findings"] if finding["code"] == "worker_lost"]
    assert (lost["rank"], lost["file"], lost["severity"]) == (1, "rank1.json.gz", "error")
    assert "killed" in lost["message"]


def test_strict_makes_a_lost_trace_an_error(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.md"
    done = execute([*ANALYZE, str(run), "--strict", "--no-cache", "-o", str(out)])
    assert done.returncode == 1
    assert done.stderr.startswith("perfkit: error: --strict: ")
    assert done.stderr.count("\n") == 1
    assert "rank2.json.gz" in done.stderr
    assert not out.exists()


def test_an_interrupt_ends_everything(tmp_path: Path) -> None:
    for rank in range(2):
        make_large(tmp_path / f"rank{rank}.json.gz", 150)
    with start([*ANALYZE, str(tmp_path), "--executor", "processes", "--workers", "2", "--no-cache"]) as running:
        deadline = time.monotonic() + LIMIT_S
        while len(children := descendants_of(running.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.5)
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=LIMIT_S)
    assert len(children) == 2
    assert running.returncode == 130
    assert errors == "perfkit: error: interrupted\n"
    assert alive(children) == []


# ---- the bar -------------------------------------------------------------------------------------------------------


def on_a_terminal(command: list[str]) -> str:
    """Return what a command writes to stderr if that is a terminal."""
    ours, theirs = pty.openpty()
    shown = b""
    with subprocess.Popen(command, stderr=theirs, stdout=subprocess.DEVNULL, env=environment()) as running:
        os.close(theirs)
        while select.select([ours], [], [], LIMIT_S)[0]:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
    os.close(ours)
    assert running.returncode == 0
    return shown.decode()


@pytest.mark.slow  # the bar appears only after a while
def test_the_bar_is_for_terminals_and_for_patience(tmp_path: Path) -> None:
    for rank in range(4):
        make_large(tmp_path / f"rank{rank}.json.gz", 60)
    slow = [*ANALYZE, str(tmp_path), "--no-cache", "--executor", "serial"]
    assert "reading traces" in on_a_terminal(slow)
    assert execute(slow).stderr == ""
