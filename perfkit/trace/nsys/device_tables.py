"""Read what ran on the devices of a process: kernels, CUDA graphs, copies and waits."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from perfkit.trace.events import DeviceArgsColumns, EventKind, KernelLaunch
from perfkit.trace.intervals import Ints, combinations
from perfkit.trace.nsys.columns import Columns
from perfkit.trace.nsys.database import Database

KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
FILLS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
WAITS: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"
NEEDED: Final = ("start", "end", "deviceId", "streamId", "correlationId")
KERNEL_NAMES: Final = ("demangledName", "shortName", "mangledName")
"""Columns with the number of a kernel's name; the first that the table has."""

_SHAPE: Final = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_MOST_LAUNCHES: Final = 1 << 16
_DIRECTIONS: Final = {
    1: "HtoD",
    2: "DtoH",
    3: "HtoA",
    4: "AtoH",
    5: "AtoA",
    6: "AtoD",
    7: "DtoA",
    8: "DtoD",
    9: "HtoH",
    10: "PtoP",
}
"""`CUpti_ActivityMemcpyKind`, which `ENUM_CUDA_MEMCPY_OPER` repeats; named as kineto does."""
_MEMORY: Final = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device", 6: "Managed"}
"""`ENUM_CUDA_MEM_KIND`."""


def of_process(database: Database, table: str) -> str:
    """Return the condition for the rows of one process; older schemas have one process, and do not tell."""
    column = next((name for name in ("globalTid", "globalPid") if database.has(table, name)), None)
    return f"WHERE ({column} >> 24) & 16777215 = ?" if column else "WHERE ? IS NOT NULL"


def read_kernels(database: Database, columns: Columns, pid: int) -> DeviceArgsColumns:
    """Add the kernels, and return how they were launched."""
    launches: dict[tuple[int, ...], int] = {}
    rows, launch = [np.zeros(0, np.int64)], [np.zeros(0, np.int32)]
    if KERNELS in database.tables:
        name = next(one for one in KERNEL_NAMES if database.has(KERNELS, one))
        for block in database.integers(KERNELS, (*NEEDED, name, *_SHAPE), of_process(database, KERNELS), [pid]):
            first = columns.rows
            added = _add(columns, EventKind.KERNEL, "kernel", block[:5], columns.text(block[5]))
            rows.append(np.arange(first, columns.rows))
            launch.append(_launches(block[6:, added], launches))
    described = tuple(KernelLaunch(grid=shape[:3], block=shape[3:]) for shape in launches)  # type: ignore[arg-type]
    return DeviceArgsColumns(kernel_row=np.concatenate(rows), launch=np.concatenate(launch), launches=described)


def _launches(shape: Ints, known: dict[tuple[int, ...], int]) -> NDArray[np.int32]:
    """Return the index of each kernel's launch, from the columns of `_SHAPE`; -1 if it is not recorded or kept."""
    found, index = combinations(shape)
    numbers = []
    for one in map(tuple, found.T.tolist()):
        if min(one) >= 0 and len(known) < _MOST_LAUNCHES:
            known.setdefault(one, len(known))
        numbers.append(known.get(one, -1))
    return np.array(numbers or [-1], np.int32)[index]


def read_copies(database: Database, columns: Columns, pid: int) -> None:
    """Add copies and fills, named as kineto does: `Memcpy HtoD (Pinned -> Device)`."""
    for table, shown, named in (
        (COPIES, ("copyKind", "srcKind", "dstKind"), _copy),
        (FILLS, ("memKind",), lambda kind: f"Memset ({_MEMORY.get(kind, 'Unknown')})"),
    ):
        category = "gpu_memcpy" if table == COPIES else "gpu_memset"
        for block in _blocks(database, table, shown, pid):
            found, index = combinations(block[5:])
            names = np.array([columns.given(named(*one)) for one in found.T.tolist()] or [0], np.int64)
            _add(columns, EventKind.COPY, category, block[:5], names[index])


def _copy(direction: int, source: int, target: int) -> str:
    ends = f" ({_MEMORY[source]} -> {_MEMORY[target]})" if {source, target} <= _MEMORY.keys() else ""
    return f"Memcpy {_DIRECTIONS.get(direction, 'Unknown')}{ends}"


def read_graphs(database: Database, columns: Columns, pid: int) -> int:
    """Add the CUDA graphs that were recorded as a whole, each as one kernel; return their number."""
    before = columns.rows
    for block in _blocks(database, GRAPHS, ("graphId",), pid):
        found, index = combinations(block[5:])
        names = np.array([columns.given(f"CUDA graph {one}") for (one,) in found.T.tolist()] or [0], np.int64)
        _add(columns, EventKind.KERNEL, "kernel", block[:5], names[index])
    return columns.rows - before


def read_waits(database: Database, columns: Columns, pid: int) -> None:
    """Add waits for streams and events, which only timelines show."""
    for block in _blocks(database, WAITS, (), pid):
        _add(columns, EventKind.OTHER, "cuda_sync", block[:5], np.full(block.shape[1], columns.given("Synchronize")))


def _blocks(database: Database, table: str, further: Sequence[str], pid: int) -> Iterator[Ints]:
    """Yield the rows of a process: `NEEDED` columns, then `further` ones; nothing without the table."""
    if table in database.tables:
        yield from database.integers(table, (*NEEDED, *further), of_process(database, table), [pid])


def _add(columns: Columns, kind: EventKind, category: str, block: Ints, name: Ints) -> NDArray[np.bool_]:
    start, end, device, stream, correlation = block
    thread = columns.device_threads(device, stream)
    return columns.add(kind, category, np.array([start, end]), thread=thread, name=name, correlation=correlation)
