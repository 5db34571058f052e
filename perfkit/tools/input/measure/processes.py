"""Passes over the samples, each load timed, and the worker processes that read: their CPU time, memory, and a gate.

They wait at the gate before they read: what is measured is reading, not starting them.
"""

import os
import re
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, multiprocessing
from torch.utils.data import Dataset, get_worker_info

from perfkit.errors import RunError
from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.records.benchmark import InputPass
from perfkit_workloads.base import DataSpec, SampleGenerator
from perfkit_workloads.data import DataOptions
from perfkit_workloads.data.opening import Opened
from perfkit_workloads.data.source import NoOptions, Source

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


_START_S = 300.0


class Gate:
    """What the workers of this rank wait at, once each.

    Args:
        workers: Their number.
        worker_start: How they are started.
    """

    def __init__(self, workers: int, worker_start: str) -> None:
        context = multiprocessing.get_context(worker_start)
        self._workers = workers
        self._waiting, self._open = context.Semaphore(0), context.Event()
        self._passed = False

    def pass_through(self) -> None:
        """Wait, in a worker, until the gate is open."""
        if not self._passed and get_worker_info() is not None:
            self._waiting.release()
            self._open.wait()
            self._passed = True

    def wait_for_workers(self) -> None:
        """Return once all workers wait.

        Raises:
            RunError: They do not start.
        """
        for _ in range(self._workers):
            if not self._waiting.acquire(timeout=_START_S):
                raise RunError(f"the loader's workers have not started within {_START_S:.0f} s")

    def open(self) -> None:
        """Let them read."""
        self._open.set()


class GatedSource(Source[NoOptions]):
    """Another source, whose samples are read through a gate."""

    def __init__(self, source: Source[Any], gate: Gate) -> None:
        super().__init__(NoOptions())
        self._source, self._gate = source, gate

    def prepare(self, workload: SampleGenerator, spec: DataSpec, options: DataOptions) -> Path | None:
        """Prepare the other source."""
        return self._source.prepare(workload, spec, options)

    def dataset(
        self, workload: SampleGenerator, spec: DataSpec, path: Path | None, options: DataOptions
    ) -> Dataset[Any]:
        """Return the samples of the other source, behind the gate."""
        return _Gated(self._source.dataset(workload, spec, path, options), self._gate)


class _Gated(Dataset[Any]):
    def __init__(self, samples: Any, gate: Gate) -> None:
        self._samples, self._gate = samples, gate

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: Any) -> Any:
        self._gate.pass_through()
        return self._samples[index]


CHECKED_LOADS: Final = 4


class Timed(NamedTuple):
    """One pass on this rank."""

    loads_ns: NDArray[np.int64]
    """Of each load."""
    cpu_ns: int | None
    """CPU time of the rank and its workers."""


def time_loads(batches: Iterator[dict[str, Tensor]], step_ns: int = 0) -> Timed:
    """Take all batches; after each, sleep for `step_ns`, which is not part of a load."""
    children = workers()
    before = cpu_ns(children)
    loads = []
    while True:
        begin = time.perf_counter_ns()
        batch = next(batches, None)
        if batch is None:
            break
        loads.append(time.perf_counter_ns() - begin)
        if step_ns:
            time.sleep(step_ns / 1e9)
    after = cpu_ns(children)
    used = None if before is None or after is None else after - before
    return Timed(np.array(loads, np.int64), used)


def run_pass(ranks: ProcessRankGroup, batches: Callable[[], Iterator[dict[str, Tensor]]], step_ns: int = 0) -> Timed:
    """Time a pass, begun on all ranks at once; called by all ranks."""
    ranks.barrier()
    return time_loads(batches(), step_ns)


def summarize(by_rank: list[Timed]) -> InputPass:
    """Return a pass over all ranks."""
    together = np.concatenate([one.loads_ns for one in by_rank])
    return InputPass(
        load_ns=max(float(one.loads_ns.mean()) for one in by_rank),
        median_ns=float(np.median(together)),
        p99_ns=float(np.percentile(together, 99)),
    )


def checksum(opened: Opened) -> int:
    """Return the CRC-32 of the first batches of this rank."""
    found = 0
    for batch in islice(iter(opened.loader), CHECKED_LOADS):
        for name, tensor in sorted(batch.items()):
            found = zlib.crc32(tensor.contiguous().numpy().data, zlib.crc32(name.encode(), found))
    return found
