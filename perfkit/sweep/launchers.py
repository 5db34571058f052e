"""How the ranks of a point are started on this machine."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from perfkit.capture.distributed.launcher_env import detect_rank, find_launcher
from perfkit.errors import LaunchEnvironmentError, UsageError

PERFKIT: Final = (sys.executable, "-m", "perfkit")
"""This perfkit, wherever it is started: a launcher's PATH may have another."""


def find_mpiexec() -> str | None:
    """Return the mpiexec beside this Python (that of the mpich wheel), else that of PATH."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def _mpiexec(ranks: int, own: Sequence[str], arguments: Sequence[str]) -> list[str]:
    mpiexec = find_mpiexec()
    if mpiexec is None:
        raise LaunchEnvironmentError("--launcher mpiexec: there is none on PATH: install perfkit[mpi], or use torchrun")
    return [mpiexec, "-n", str(ranks), *own, *PERFKIT, *arguments]


def _torchrun(ranks: int, own: Sequence[str], arguments: Sequence[str]) -> list[str]:
    # A port that is free: two sweeps on one machine would meet on torchrun's default.
    meeting = ["--nproc-per-node", str(ranks), "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    return [sys.executable, "-m", "torch.distributed.run", *meeting, *own, "-m", "perfkit", *arguments]


def _perfkit(ranks: int, own: Sequence[str], arguments: Sequence[str]) -> list[str]:
    if own:
        raise UsageError("--launcher-options are for mpiexec and torchrun")
    return [*PERFKIT, *arguments, "-n", str(ranks)]


LAUNCHERS: Final[dict[str, Callable[[int, Sequence[str], Sequence[str]], list[str]]]] = {
    "mpiexec": _mpiexec,
    "torchrun": _torchrun,
    "perfkit": _perfkit,
}
"""Name to what makes a command of ranks, the launcher's own options, and what follows `perfkit`."""


def default_launcher() -> str:
    """Return mpiexec where there is one, else perfkit, which needs nothing."""
    return "mpiexec" if find_mpiexec() else "perfkit"


def refuse_inside_launcher() -> None:
    """Refuse to start ranks where a launcher has started several of this.

    Raises:
        UsageError: It has.
    """
    launcher = find_launcher(os.environ)
    if launcher is not None and detect_rank(os.environ).world_size > 1:
        raise UsageError(
            f"perfkit sweep inside {launcher.name}, which has started several of it: start it alone; it starts the "
            "ranks of each point itself"
        )
