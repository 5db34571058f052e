"""Read what ran on the host of a process: calls of the CUDA runtime and driver, and of the operating system."""

from typing import Final

import numpy as np

from perfkit.trace.events import EventKind
from perfkit.trace.nsys.columns import Columns
from perfkit.trace.nsys.database import Database
from perfkit.trace.nsys.device_tables import of_process

CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
NEEDED: Final = ("start", "end", "globalTid", "nameId", "correlationId")
SYSTEM_CALLS: Final = "OSRT_API"


def read_calls(database: Database, columns: Columns, pid: int) -> None:
    """Add the calls of the runtime and the driver; they launch what has their correlation."""
    _read(database, columns, pid, CALLS, EventKind.LAUNCH, "cuda_runtime")


def read_system_calls(database: Database, columns: Columns, pid: int) -> None:
    """Add calls of the operating system, which only timelines show."""
    _read(database, columns, pid, SYSTEM_CALLS, EventKind.OTHER, "os_runtime")


def _read(database: Database, columns: Columns, pid: int, table: str, kind: EventKind, category: str) -> None:
    if table not in database.tables:
        return
    for start, end, thread, name, correlation in database.integers(table, NEEDED, of_process(database, table), [pid]):
        of = {"thread": columns.host_threads(thread), "name": columns.text(name), "correlation": correlation}
        columns.add(kind, category, np.array([start, end]), **of)
