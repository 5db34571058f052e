"""Passes over the samples: every rank loads its batches, and times each load."""

import time
import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from perfkit.record.distributed.rank_group import ProcessRankGroup
from perfkit.records.benchmark import InputPass
from perfkit.tools.input.measure.processes import cpu_ns, workers
from perfkit_workloads.data.opening import Opened

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
