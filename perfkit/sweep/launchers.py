"""Commands that start the ranks of a point on this machine."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from perfkit.capture.distributed.known_launchers import find_launcher
from perfkit.capture.distributed.launcher_env import detect_rank
from perfkit.errors import LaunchEnvironmentError, UsageError
from perfkit.util.extras import install_extra

PERFKIT: Final = (sys.executable, "-m", "perfkit")
"""This perfkit: a launcher's PATH may have another one."""


def find_mpiexec() -> str | None:
    """Return the mpiexec in the folder of this Python (of the mpich wheel), else the one on PATH; None if none."""
    beside = Path(sys.executable).with_name("mpiexec")
    return str(beside) if beside.exists() else shutil.which("mpiexec")


def _mpiexec(ranks: int, own: Sequence[str], arguments: Sequence[str]) -> list[str]:
    mpiexec = find_mpiexec()
    if mpiexec is None:
        raise LaunchEnvironmentError(f"--launcher mpiexec: not found on PATH: {install_extra('mpi')}, or use torchrun")
    return [mpiexec, "-n", str(ranks), *own, *PERFKIT, *arguments]


def _torchrun(ranks: int, own: Sequence[str], arguments: Sequence[str]) -> list[str]:
    # A free port: two sweeps on one machine would collide on torchrun's default.
    rendezvous = ["--nproc-per-node", str(ranks), "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    return [sys.executable, "-m", "torch.distributed.run", *rendezvous, *own, "-m", "perfkit", *arguments]


def _perfkit(ranks: int, own: Sequence[str], arguments: Sequence[str]) -> list[str]:
    if own:
        raise UsageError("--launcher-options are for mpiexec and torchrun")
    return [*PERFKIT, *arguments, "-n", str(ranks)]


LAUNCHERS: Final[dict[str, Callable[[int, Sequence[str], Sequence[str]], list[str]]]] = {
    "mpiexec": _mpiexec,
    "torchrun": _torchrun,
    "perfkit": _perfkit,
}
"""Name to a function of the ranks, the launcher's own options and the arguments of perfkit; it returns the command."""


def default_launcher() -> str:
    """Return mpiexec if there is one, else perfkit, which needs nothing installed."""
    return "mpiexec" if find_mpiexec() else "perfkit"


def refuse_inside_launcher() -> None:
    """Refuse to start ranks from one of several processes of a launcher.

    Raises:
        UsageError: A launcher has started several of this process.
    """
    launcher = find_launcher(os.environ)
    if launcher is not None and detect_rank(os.environ).world_size > 1:
        raise UsageError(
            f"perfkit sweep inside {launcher.name}, which has started several processes: start it once; it starts the "
            "ranks of each point itself"
        )
