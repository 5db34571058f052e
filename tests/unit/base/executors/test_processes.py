"""The pool of child processes: results, errors, deaths, progress, endings."""

import math
import os
import signal
import time
from concurrent.futures import Executor
from pathlib import Path

import pytest

from perfkit.base import system_limits as machine
from perfkit.base.executors import EXECUTORS, ExecutorOptions, check, open_executor
from perfkit.base.executors.processes import Processes
from perfkit.base.executors.worker_process import WorkerProcess, run_in_worker_process, stop_worker_processes
from perfkit.base.system_limits import count_cores, free_bytes
from perfkit.errors import UsageError, WorkerError
from tests.support.processes.launching import LIMIT_S, alive, children_of


@pytest.mark.parametrize("name", sorted({*EXECUTORS.builtin} - {"mpi"}))
def test_every_executor_computes_and_raises(name: str) -> None:
    with open_executor(name, ExecutorOptions()) as pool:
        done = pool.submit(math.factorial, 20)
        failed = pool.submit(math.factorial, -1)
        assert done.result(LIMIT_S) == math.factorial(20)
        with pytest.raises(ValueError, match="negative"):
            failed.result(LIMIT_S)


def test_a_worker_that_dies_costs_only_what_it_did() -> None:
    with open_executor("processes", ExecutorOptions(workers=1)) as pool:
        before = pool.submit(os.getpid)
        killed = pool.submit(os._exit, 7)
        after = pool.submit(os.getpid)
        with pytest.raises(WorkerError, match="ended with exit code 7"):
            killed.result(LIMIT_S)
        assert after.result(LIMIT_S) != before.result(LIMIT_S)


def test_a_killed_worker_says_so() -> None:
    child = WorkerProcess()
    with pytest.raises(WorkerError, match=r"was killed.*memory"):
        child.call(signal.raise_signal, signal.SIGKILL)
    assert alive([child.process.pid]) == []


def test_children_are_kept_and_die_with_their_work() -> None:
    first = run_in_worker_process(os.getpid)
    assert run_in_worker_process(os.getpid) == first
    with pytest.raises(WorkerError):
        run_in_worker_process(os._exit, 1)
    last = run_in_worker_process(os.getpid)
    assert last not in {first, os.getpid()}
    stop_worker_processes()
    assert alive([first, last]) == []


def test_leaving_in_the_middle_ends_every_child_at_once() -> None:
    before = set(children_of(os.getpid()))
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), open_executor("processes", ExecutorOptions(workers=2)) as pool:  # noqa: PT012
        ready = [pool.submit(os.getpid) for _ in range(4)]
        assert [future.result(LIMIT_S) for future in ready]
        sleeping = [pool.submit(time.sleep, 600) for _ in range(4)]
        raise KeyboardInterrupt
    assert time.monotonic() - begun < LIMIT_S
    assert set(children_of(os.getpid())) <= before
    assert all(future.done() for future in sleeping)


def test_what_lies_in_the_folder_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    child = WorkerProcess()
    assert child.call(_module_file, "msgspec") != str(tmp_path / "msgspec.py")
    child.kill()


def test_folders_may_have_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = tmp_path / "{project} 'x'"
    odd.mkdir()
    (odd / "only_there.py").touch()
    monkeypatch.syspath_prepend(str(odd))
    child = WorkerProcess()
    assert child.call(_module_file, "only_there") == str(odd / "only_there.py")
    child.kill()


def _module_file(name: str) -> str:
    import importlib

    return str(importlib.import_module(name).__file__)


def _report(count: int, progress: object = None) -> int:
    assert callable(progress)
    for _ in range(count):
        progress(400_000)
    return count


def test_progress_comes_up_in_pieces() -> None:
    seen: list[int] = []
    with open_executor("processes", ExecutorOptions(workers=1)) as pool:
        assert isinstance(pool, Processes)
        assert pool.submit(_report, 7, progress=seen.append).result(LIMIT_S) == 7
    assert seen == [1_200_000, 1_200_000]


def test_the_machine_has_something() -> None:
    assert 1 <= count_cores() <= (os.cpu_count() or 1)
    assert (free_bytes() or 1) > 0


GROUPS = {
    "version 2": (
        "0::/job/step\n",
        {
            "job/step": {"memory.max": "max", "memory.current": "5", "cpu.max": "max 100000", "memory.stat": ""},
            "job": {
                "memory.max": "1000000000",
                "memory.current": "900000000",
                "memory.stat": "anon 100\ninactive_file 700000000",
                "cpu.max": "100000 100000",
            },
        },
    ),
    "version 1": (
        "4:memory:/job\n1:cpu,cpuacct:/job\n0::/\n",
        {
            "memory/job": {
                "memory.limit_in_bytes": "1000000000",
                "memory.usage_in_bytes": "900000000",
                "memory.stat": "inactive_file 1\ntotal_inactive_file 700000000",
            },
            "memory": {"memory.limit_in_bytes": "9223372036854771712", "memory.usage_in_bytes": "900000000"},
            "cpu": {"cpu.cfs_quota_us": "100000", "cpu.cfs_period_us": "100000"},
        },
    ),
    "a container that sees other names": (
        "0::/../../kubepods/pod7\n",
        {
            ".": {
                "memory.max": "1000000000",
                "memory.current": "200000000",
                "memory.stat": "inactive_file 0",
                "cpu.max": "50000 100000",
            }
        },
    ),
}


@pytest.mark.parametrize("version", GROUPS)
def test_the_limits_of_a_job_or_container_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    mine, folders = GROUPS[version]
    for folder, files in folders.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (tmp_path / folder / name).write_text(content + "\n")
    (tmp_path / "groups").write_text(mine)
    (tmp_path / "meminfo").write_text("MemTotal: 99000000 kB\nMemAvailable: 90000000 kB\n")
    monkeypatch.setattr(machine, "_CGROUP", tmp_path)
    monkeypatch.setattr(machine, "_MY_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(machine, "_MEMINFO", tmp_path / "meminfo")
    assert free_bytes() == 800_000_000  # what is only a file's copy in memory is given up when asked for
    assert count_cores() == 1


@pytest.mark.parametrize(
    ("executor", "choice", "named"),
    [
        ("threads", ExecutorOptions(), "threads"),
        ("processes", ExecutorOptions(scheduler="tcp://h:1"), "--scheduler"),
        (None, ExecutorOptions(scheduler="tcp://h:1"), "--scheduler"),
        ("serial", ExecutorOptions(workers=2), "--workers"),
        ("mpi", ExecutorOptions(workers=2), "--workers"),
        ("dask", ExecutorOptions(workers=2, scheduler="tcp://h:1"), "--workers"),
        ("processes", ExecutorOptions(workers=0), "--workers 0"),
    ],
)
def test_what_does_not_fit_together_is_refused(
    executor: str | Executor | None, choice: ExecutorOptions, named: str
) -> None:
    with pytest.raises(UsageError, match=named):
        check(executor, choice)


def test_an_open_executor_has_no_options() -> None:
    with open_executor("serial", ExecutorOptions()) as pool, pytest.raises(UsageError, match="already open"):
        check(pool, ExecutorOptions(workers=2))
