"""Reads a snapshot of memory, and adds what it tells to the report of its run."""

import re
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from perfkit.errors import UsageError
from perfkit.records.per_rank.memory import MemorySnapshot
from perfkit.records.run import RunReport
from perfkit.storage.memory_snapshot_file import read_snapshot
from perfkit.subjects.memory.snapshot.tabulate import tabulate

_RANK: Final = re.compile(r"rank[_-]?(\d{1,9})(?!\d)")


def load_memory_snapshot(path: str | Path) -> MemorySnapshot:
    """Return the contents of a pickle of `torch.cuda.memory._dump_snapshot`.

    Raises:
        TraceError: The file cannot be read, or is not a snapshot of plain values.
    """
    file = Path(path)
    rank = _RANK.search(file.name)
    devices = [tabulate(device) for device in read_snapshot(file)]
    return MemorySnapshot(file=file.name, rank=int(rank[1]) if rank else None, devices=devices)


def with_snapshot(runs: list[RunReport], snapshot: MemorySnapshot) -> list[RunReport]:
    """Return the runs, the only one with its snapshot.

    Raises:
        UsageError: There are several.
    """
    if len(runs) != 1:
        raise UsageError(f"--memory-snapshot {snapshot.file} belongs to one run; PATH has {len(runs)}: give one")
    return [replace(runs[0], memory_snapshot=snapshot)]
