"""Checks of the machine itself: Python, cores, disk, shared memory, compiler, launcher."""

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from perfkit.capture.distributed.launcher_env import RankInfo, detect_rank
from perfkit.errors import LaunchEnvironmentError
from perfkit.schema.doctor import Check
from perfkit.util.extras import install_extra
from perfkit.util.formatting import size
from perfkit.util.system_limits import count_cores, free_bytes

_LEAST_DISK: Final = 1_000_000_000
_LEAST_SHARED: Final = 256_000_000
"""Samples go from loader workers to the rank through shared memory."""
_STARTERS: Final = ("mpiexec", "srun", "torchrun")


def check_python() -> Check:
    """Return which Python runs, and where."""
    found = f"{platform.python_version()} at {sys.executable}, {platform.system()} {platform.machine()}"
    return Check(name="Python", state="ok", found=found)


def check_cores() -> Check:
    """Return how many cores and how much memory this process may use."""
    threads = os.environ.get("OMP_NUM_THREADS")
    memory = free_bytes()
    parts = [
        f"{count_cores()} for this process",
        *([f"{size(memory)} of memory free"] if memory is not None else []),
        *([f"OMP_NUM_THREADS={threads}"] if threads else []),
    ]
    return Check(name="cores", state="ok", found=", ".join(parts))


def check_launcher() -> tuple[Check, RankInfo]:
    """Return who started this process, which launchers there are, and the place among the ranks."""
    there = [name for name in _STARTERS if shutil.which(name)]
    available = f"on PATH: {', '.join(there) or 'none'}"
    try:
        place = detect_rank(os.environ)
    except LaunchEnvironmentError as error:
        remedy = "start all ranks with one launcher, or unset variables that an outer one left"
        return Check(name="launcher", state="problem", found=str(error), remedy=remedy), RankInfo()
    if place.launcher == "none" and not there:
        remedy = f"{install_extra('mpi')}; `perfkit run … -n N` starts ranks without one"
        return Check(name="launcher", state="absent", found=available, remedy=remedy), place
    if place.launcher == "none":
        return Check(name="launcher", state="ok", found=f"none; {available}"), place
    found = f"{place.launcher}: rank {place.rank} of {place.world_size}, local rank {place.local_rank}; {available}"
    return Check(name="launcher", state="ok", found=found), place


def check_folders(trace_dir: Path) -> Iterator[Check]:
    """Yield whether the folders that perfkit writes to can be written to, and have room."""
    yield _room("trace folder", trace_dir, _LEAST_DISK, "choose another with --trace-dir")
    yield _room("temporary files", Path(tempfile.gettempdir()), _LEAST_DISK, "set TMPDIR to a folder with more room")
    shared = Path("/dev/shm")  # noqa: S108 — its free space is read, nothing is written
    if shared.is_dir():
        yield _room("shared memory", shared, _LEAST_SHARED, "needed by --num-workers: in a container, --shm-size=8g")


def _room(name: str, folder: Path, least: int, remedy: str) -> Check:
    """Return the free space of a folder, or of the nearest one above it that exists."""
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.is_dir())
    if not os.access(there, os.W_OK | os.X_OK):
        return Check(name=name, state="problem", found=f"{there} cannot be written to", remedy=remedy)
    free = shutil.disk_usage(there).free
    enough = free >= least
    found = f"{there}, {size(free)} free"
    return Check(name=name, state="ok" if enough else "problem", found=found, remedy=None if enough else remedy)


def check_compiler() -> Check:
    """Return the C++ compiler that torch.compile would use."""
    names = [name for name in (os.environ.get("CXX"), "g++", "clang++") if name]
    compiler = next((path for path in map(shutil.which, names) if path), None)
    if compiler:
        return Check(name="C++ compiler", state="ok", found=compiler)
    remedy = "needed by --compile on a CPU, and by some DeepSpeed optimizers: install g++, or set CXX"
    return Check(name="C++ compiler", state="absent", found="none on PATH", remedy=remedy)
