"""How busy the cores of this host are, and how much of it is this process and its children."""

import os
import resource
import socket
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from perfkit.base.formatting import ranges
from perfkit.record.distributed.topology import own_cores
from perfkit.record.process_stat import boot_id, stat_fields
from perfkit.records.trace_header import CoreUse

_TICK_NS: Final = 10**9 // os.sysconf("SC_CLK_TCK")
_TIMES: Final = slice(11, 15)
"""Fields of /proc/PID/stat: the time of a process, and of its children that have ended, each of user and system."""
_SHORTEST_NS: Final = 100_000_000
"""Ten ticks, in which the system counts the time of cores: from then on a count is off by a tenth at most."""


class ProcessorTimes(NamedTuple):
    """Time of some cores since the system has started, summed over them (ns)."""

    busy_ns: int
    """Also what the hypervisor ran others in (stolen time)."""
    idle_ns: int


def processor_times(cores: Collection[int] | None = None) -> ProcessorTimes | None:
    """Return how long cores were busy and idle; None if the system does not show it."""
    names = {"cpu"} if cores is None else {f"cpu{number}" for number in cores}
    with suppress(OSError, ValueError, IndexError):
        rows = map(str.split, Path("/proc/stat").read_text().splitlines())
        ticks = [list(map(int, row[1:9])) for row in rows if row and row[0] in names]
        if ticks:
            idle = sum(row[3] + row[4] for row in ticks)
            return ProcessorTimes(_TICK_NS * (sum(map(sum, ticks)) - idle), _TICK_NS * idle)
    return None


def own_time_ns() -> int:
    """Return the CPU time (ns) of this process and its children, those that have ended included."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time_ns() + round(1e9 * (ended.ru_utime + ended.ru_stime)) + sum(map(_time_ns, _descendants()))


def _time_ns(pid: int) -> int:
    with suppress(OSError, ValueError):
        return _TICK_NS * sum(map(int, stat_fields(pid)[_TIMES]))
    return 0


def _descendants() -> Iterator[int]:
    """Yield the processes that this one and its children have started, and that still run."""
    parents = [os.getpid()]
    while parents:
        for listed in Path(f"/proc/{parents.pop()}/task").glob("*/children"):
            with suppress(OSError):  # a thread or process has ended meanwhile
                children = [int(pid) for pid in listed.read_text().split()]
                yield from children
                parents += children


class CoreMeter:
    """Measures how busy the cores are that this process may run on, and how much of that it is itself."""

    def __init__(self) -> None:
        self._cores = own_cores()
        self._begin_ns = 0
        self._own_ns = 0
        self._before: ProcessorTimes | None = None

    def start(self) -> None:
        self._before, self._own_ns = processor_times(self._cores), own_time_ns()
        self._begin_ns = time.perf_counter_ns()

    def read(self) -> CoreUse | None:
        """Return the use since `start`; None if there was no start, or the system does not show it."""
        if not self._begin_ns:
            return None
        window_ns, own_ns = time.perf_counter_ns() - self._begin_ns, own_time_ns() - self._own_ns
        busy_ns = self._busy_ns(window_ns)
        if busy_ns is None:
            return None
        return CoreUse(
            cores=f"{boot_id() or socket.gethostname()}: {ranges(self._cores)}",
            count=len(self._cores),
            window_ns=window_ns,
            busy_ns=busy_ns,
            own_ns=max(0, own_ns),
        )

    def _busy_ns(self, window_ns: int) -> int | None:
        """Return how long the cores were busy; by the load of the last minute where the system counts no time."""
        now = processor_times(self._cores)
        if now is not None and self._before is not None and window_ns >= _SHORTEST_NS:
            return now.busy_ns - self._before.busy_ns
        with suppress(OSError):
            share = min(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
            return round(share * len(self._cores) * window_ns)
        return None
