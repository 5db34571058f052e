"""CPU time and memory of this process and its workers, as Linux reports them."""

import multiprocessing
import os
import re
import time
from pathlib import Path
from typing import Final

_KIB: Final = re.compile(r"^Pss_(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)


def workers() -> list[int]:
    """Return the processes that this one has started with `multiprocessing` and that still run."""
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def cpu_ns(children: list[int]) -> int | None:
    """Return the CPU time of this process and of `children` so far; None if that of a child is unknown."""
    total = time.process_time_ns()
    for pid in children:
        try:
            tasks = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
        except OSError:
            return None
        if not tasks:
            return None
        total += sum(int(task.split()[0]) for task in tasks)
    return total


def memory_bytes(children: list[int]) -> int | None:
    """Return the memory of this process and `children` without the page cache; shared pages count in parts."""
    total = 0
    for pid in (os.getpid(), *children):
        try:
            found = _KIB.findall(Path(f"/proc/{pid}/smaps_rollup").read_text())
        except OSError:
            return None
        if not found:
            return None
        total += 1024 * sum(map(int, found))
    return total
