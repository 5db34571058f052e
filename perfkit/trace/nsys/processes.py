"""Find the processes in a file: nsys writes one for all that a command starts, such as the ranks of torchrun."""

from pathlib import Path
from typing import Final

import numpy as np

from perfkit.errors import TraceError
from perfkit.trace.intervals import Ints, combinations
from perfkit.trace.nsys.columns import process_id
from perfkit.trace.nsys.database import MISSING, Database, open_database
from perfkit.trace.nsys.device_tables import GRAPHS, KERNELS
from perfkit.trace.nsys.host_tables import CALLS
from perfkit.trace.nsys.ranges import RANGES

_CONTEXTS: Final = "TARGET_INFO_CUDA_CONTEXT_INFO"
_MOST_PROCESSES: Final = 1 << 12


def part_paths(path: Path) -> list[Path]:
    """Return the paths of the processes in a file that used a device; the file's own if that is one, or unknown."""
    try:
        with open_database(path) as database:
            processes = find_processes(database)
    except TraceError:  # reading it says why
        return [path]
    return [path.with_name(f"{path.name}@{pid}") for pid in processes] if len(processes) > 1 else [path]


def find_processes(database: Database) -> list[int]:
    """Return the processes that used a device, by their first device, then by their number; else those with ranges."""
    first_device: dict[int, int] = {}
    if database.has(_CONTEXTS, "processId", "deviceId"):
        for pids, devices in database.integers(_CONTEXTS, ["processId", "deviceId"]):
            _note(first_device, pids, devices)
    for table in (KERNELS, GRAPHS) if not first_device else ():
        if database.has(table, "globalPid"):
            for pids, devices in database.integers(table, ["globalPid", "deviceId"]):
                _note(first_device, process_id(pids), devices)
    for table in (CALLS, RANGES):
        if not first_device and database.has(table, "globalTid"):
            for (threads,) in database.integers(table, ["globalTid"]):
                _note(first_device, process_id(threads), np.zeros_like(threads))
    return sorted(first_device, key=lambda pid: (first_device[pid], pid))


def _note(first_device: dict[int, int], pids: Ints, devices: Ints) -> None:
    known = pids != MISSING
    found, _ = combinations(np.array([pids[known], devices[known]]))
    for pid, device in found.T.tolist():
        if len(first_device) < _MOST_PROCESSES:
            first_device[pid] = min(device, first_device.get(pid, device))
