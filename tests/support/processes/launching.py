"""Start perfkit as tests need it, alone and under each launcher, and watch its processes."""

import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from perfkit.storage.run_folder import MANIFEST_NAME

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
STUB_TORCH = ROOT / "tests" / "support" / "stub_torch"
PYTHON = [sys.executable, "-m", "perfkit"]
TORCHRUN = [
    sys.executable,
    *(
        "-m",
        "torch.distributed.run",
        "--nproc-per-node",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "127.0.0.1:0",
    ),
]
MPIEXEC = [str(BIN / "mpiexec"), "-n", "2"]
SHORT = ["--schedule", "wait=1,warmup=1,active=3"]
"""Five steps and a trace; an own schedule after it takes precedence."""
TINY = {
    "transformer": ["transformer", "--preset", "tiny", "--no-report", *SHORT],
    "gpt": ["gpt", "--batch-size", "4", "--samples", "256", "--no-report", *SHORT],
}
"""Without the answer at the end, whose analysis takes as long as some of the runs do."""
LIMIT_S = 400
"""After which a process hangs: several times what any needs on a busy machine."""
NOT_THE_MACHINE = {
    *("collective_sizes_unmatched", "collectives_unmatched", "groups_incomplete", "no_collectives", "uneven_steps"),
    *("damaged_trace", "repaired_events", "skipped_events", "unknown_events", "no_host_operators", "missing_traces"),
    *("multiple_traces_per_rank",),
    *("no_steps", "repeated_steps", "work_before_steps", "compilation_recorded", "not_compiled", "injected_delay"),
    *("duplicate_rank", "rank_out_of_range", "rank_unknown", "ranks_missing", "mixed_devices"),
    *("unreadable_manifest", "run_failed", "run_unfinished", "worker_lost"),
    *("header_ranks_ignored", "rank_name_mismatch"),
}
"""Findings that a healthy run never has. The others (stragglers, clock offsets) depend on the machine."""

needs_mpiexec = pytest.mark.skipif(not (BIN / "mpiexec").exists(), reason="no mpiexec beside this python")


def environment(*, stub_torch: bool = False) -> dict[str, str]:
    """Return this process's environment without a launcher's variables.

    PYTHONUNBUFFERED is removed too: with it a line is written in pieces, which two ranks mix on the pipe they share.
    So is PYTHONDONTWRITEBYTECODE: tests start hundreds of processes, and each would compile perfkit again.

    Args:
        stub_torch: Whether `import torch` finds the stand-in of tests/support/stub_torch.
    """
    foreign = ("SLURM_", "PMI", "OMPI_", "PYTEST_", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
    path = [str(STUB_TORCH)] * stub_torch + [str(ROOT)]
    return clean | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path)}


def execute(
    command: list[str], *, limit_s: float = LIMIT_S, stub_torch: bool = False, cwd: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=environment(stub_torch=stub_torch),
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        cwd=cwd,
    )


@functools.cache
def in_real_time() -> tuple[str, ...]:
    """Return what starts a process whose ranks other programs do not delay when they wake up; nothing without rights.

    For ranks that sleep or wait nearly all the time, in tests that run alone: they take little from others.
    """
    command = ("chrt", "-f", "50")
    if shutil.which("chrt") is None:
        return ()
    tried = subprocess.run([*command, "true"], capture_output=True, check=False)
    return command if tried.returncode == 0 else ()


def record_forked(
    folder: Path, ranks: int, cases: dict[str, str], *, before: Sequence[str] = (), packages: Path = ROOT
) -> str:
    """Record runs one after the other, whose ranks are forks of one process: torch is imported once for all.

    Args:
        folder: Where the runs go, each into the folder of its name.
        ranks: Ranks of each run.
        cases: The arguments of `perfkit run`, by the run's name.
        before: What starts the process, such as a scheduling class.
        packages: Folder of installed plug-ins.

    Returns:
        What the ranks have written to stderr.
    """
    texts = [f"{arguments} --trace-dir {folder} --name {name}" for name, arguments in cases.items()]
    module = [sys.executable, "-m", "tests.support.processes.forked_runs", str(ranks)]
    paths = os.pathsep.join((str(ROOT), str(packages)))
    started = [*before, "env", f"PYTHONPATH={paths}", *module]
    done = execute([*started, *texts], limit_s=LIMIT_S * len(cases))
    assert done.returncode == 0, done.stderr
    return done.stderr


def start(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT
    )


def wait_for_folder(trace_dir: Path) -> Path:
    """Wait for the first run in `trace_dir` and return its folder."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        for path in trace_dir.glob(f"*/{MANIFEST_NAME}"):
            return path.parent
        time.sleep(0.1)
    raise AssertionError("no run folder")


def wait_for_steps(parent: subprocess.Popen[str]) -> None:
    """Wait until rank 0 reports a step."""
    assert parent.stderr is not None
    while not (line := parent.stderr.readline()).startswith("step "):
        assert line, "the run ended without a step"


def wait_for_library(pid: int, name: str) -> None:
    """Wait until a process has begun to load a library, or has started another process."""
    deadline = time.monotonic() + LIMIT_S
    while name not in _read(Path(f"/proc/{pid}/maps")) and not children_of(pid):
        assert time.monotonic() < deadline, f"{name} is not loaded"
        time.sleep(0.01)


def children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process, in order."""
    try:
        tasks = [*Path(f"/proc/{pid}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):  # the process has ended
        return []
    return sorted(int(child) for task in tasks for child in _read(task / "children").split())


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):  # the process has ended
        return ""


def descendants_of(pid: int) -> list[int]:
    children = children_of(pid)
    return [*children, *(below for child in children for below in descendants_of(child))]


def alive(pids: list[int]) -> list[int]:
    """Return those processes that have not ended; a zombie has."""
    return [pid for pid in pids if _state(pid) not in (None, "Z", "X")]


def still_alive(pids: list[int]) -> list[int]:
    """Wait until processes have ended; kill and return those that have not in far more time than any may need."""
    deadline = time.monotonic() + LIMIT_S
    while (left := alive(pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


def _state(pid: int) -> str | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
