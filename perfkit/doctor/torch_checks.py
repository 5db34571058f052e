"""Checks of torch: its version, devices, backends and profiler."""

import re
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from perfkit.accelerators import accelerators
from perfkit.doctor.children import ProbeError, ask_child
from perfkit.schema.doctor import Check
from perfkit.util.extras import install_extra

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
        answer = ask_child("perfkit.doctor.torch_probe", "print_torch", str(local_rank))
    except ProbeError as error:
        remedy = f"try `python -c 'import torch'`; {_INDEX}"
        yield Check(name="torch", state="problem", found=f"{version}, does not work: {error}", remedy=remedy)
        return
    yield from torch_checks(answer, _drivers(Path("/dev")))


def torch_checks(answer: dict[str, Any], drivers: list[str]) -> Iterator[Check]:
    """Yield the checks of what torch answered.

    Args:
        answer: What `torch_probe` printed.
        drivers: Vendors whose device files exist.
    """
    yield _version(answer)
    yield _devices(answer, drivers)
    for name, tried in answer["backends"].items():
        yield _backend(name, tried)
    yield _profiler(answer)


def _drivers(folder: Path) -> list[str]:
    return [vendor for vendor, pattern in _NODES.items() if any(folder.glob(pattern))]


def _version(answer: dict[str, Any]) -> Check:
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
