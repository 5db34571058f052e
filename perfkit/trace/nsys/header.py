"""What a recording says of itself: its clock, host, devices, and the rank of a process."""

from itertools import islice
from typing import Final

from perfkit.trace.events import Header, ProcessGroup
from perfkit.trace.lanes import Id
from perfkit.trace.nsys.columns import process_id
from perfkit.trace.nsys.database import MISSING, Database
from perfkit.trace.nsys.device_tables import KERNELS
from perfkit.trace.nsys.host_tables import CALLS
from perfkit.trace.nsys.nccl import Calls
from perfkit.trace.nsys.ranges import RANGES
from perfkit.trace.timestamps import LIMIT_NS

_START: Final = "TARGET_INFO_SESSION_START_TIME"
_ABSOLUTE_NS: Final = 10**17
"""Later times count from the epoch (`nsys export --ts-normalize`): no recording lasts three years."""
_MOST_DEVICES: Final = 64
_MOST_GROUPS: Final = 4096
_MOST_THREAD_NAMES: Final = 100_000
_THREAD_BITS: Final = (1 << 24) - 1


def base_ns(database: Database) -> int:
    """Return the instant that the file's times count from, in ns of the epoch; 0 if they are absolute, or unknown."""
    if not database.has(_START, "utcEpochNs"):
        return 0
    for table in (KERNELS, CALLS, RANGES):
        for (start,) in islice(database.integers(table, ["start"]), 1) if table in database.tables else ():
            if start[0] > _ABSOLUTE_NS:
                return 0
    began = next((int(block[0, 0]) for block in database.integers(_START, ["utcEpochNs"])), 0)
    return began if 0 < began < LIMIT_NS else 0


def read_header(database: Database, pid: int, processes: list[int], calls: Calls) -> Header:
    """Return the header of a process's trace.

    Its rank is that of the largest communicator of NCCL that was made during the recording; else, where one file has
    several processes, its place among them.
    """
    world = calls.world
    place = processes.index(pid) if len(processes) > 1 else None
    sizes, names = _devices(database, pid)
    properties = database.texts("TARGET_INFO_SYSTEM_ENV", "name", "value")
    host = next((value for name, value in properties if name == "Hostname"), None)
    groups = [ProcessGroup(name=f"{communicator:#x}") for communicator in islice(calls.communicators, _MOST_GROUPS)]
    return Header(
        rank=world.rank if world else place,
        world_size=world.ranks if world else len(processes) if place is not None else None,
        backend="nccl" if world else None,
        host=host if isinstance(host, str) and host else None,
        base_ns=base_ns(database),
        device_bytes=sizes,
        device_names=names,
        groups=groups,
    )


def _devices(database: Database, pid: int) -> tuple[dict[int, int], dict[int, str]]:
    """Return memory and name of each device, by the number that the process uses."""
    numbers = _numbers_of_devices(database, pid)
    sizes, names = {}, {}
    if database.has("TARGET_INFO_GPU", "id", "name"):
        for block, texts in database.integers_and_text("TARGET_INFO_GPU", ["id", "totalMemory"], "name"):
            for gpu, size, text in islice(zip(*block.tolist(), texts, strict=True), _MOST_DEVICES):
                for number in numbers.get(gpu, [gpu]):
                    if size > 0:
                        sizes[number] = size
                    if isinstance(text, str):
                        names[number] = text
    return sizes, names


def _numbers_of_devices(database: Database, pid: int) -> dict[int, list[int]]:
    """Return the numbers by which the process calls each device of the host."""
    numbers: dict[int, list[int]] = {}
    if database.has("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId", "pid"):
        for block in database.integers("TARGET_INFO_CUDA_DEVICE", ["gpuId", "cudaId", "pid"]):
            for gpu, number, of in islice(block.T.tolist(), _MOST_DEVICES):
                if of == pid:
                    numbers.setdefault(gpu, []).append(number)
    return numbers


def thread_names(database: Database) -> dict[tuple[Id, Id], str]:
    """Return the names of threads of the host."""
    named: dict[int, list[tuple[Id, Id]]] = {}
    if not database.has("ThreadNames", "nameId", "globalTid"):
        return {}
    for block in database.integers("ThreadNames", ["nameId", "globalTid"]):
        for name, thread in islice(block.T.tolist(), _MOST_THREAD_NAMES):
            if MISSING not in (name, thread):
                named.setdefault(name, []).append((int(process_id(thread)), thread & _THREAD_BITS))
    found: dict[tuple[Id, Id], str] = {}
    for block, texts in database.integers_and_text("StringIds", ["id"], "value"):
        for number, text in zip(block[0].tolist(), texts, strict=True):
            if isinstance(text, str) and number in named:
                found |= dict.fromkeys(named[number], text)
    return found
