"""Traces of a device mesh on NCCL, as a program would leave them whose groups are described: dp x tp x pp."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.support.traces.trace_builder import TraceBuilder

SIZES = {"pp": 2, "dp": 2, "tp": 2}
STEPS, STEP_US = 3, 1000


class Message(NamedTuple):
    """A collective of each step: on which dimension, what, when and how long."""

    dimension: str
    operator: str
    kernel: str
    at_us: int
    took_us: int
    elements: int


MESSAGES = (
    Message("pp", "recv", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 10, 50, 512),
    Message("tp", "allreduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 200, 40, 1024),
    Message("tp", "allreduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 400, 40, 1024),
    Message("pp", "send", "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 500, 20, 512),
    Message("dp", "allreduce", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 700, 100, 8192),
)
CALLS = {"pp": 2, "tp": 2, "dp": 1}


def members(rank: int, dimension: str, sizes: Mapping[str, int] = SIZES) -> list[int]:
    """Return the ranks of the group of `rank` along a dimension, the last of which varies fastest."""
    grid = np.arange(int(np.prod(list(sizes.values())))).reshape(*sizes.values())
    place = [int(axis[0]) for axis in np.nonzero(grid == rank)]
    index: list[int | slice] = list(place)
    index[list(sizes).index(dimension)] = slice(None)
    return [int(one) for one in grid[tuple(index)].ravel()]


def write_mesh(folder: Path, descriptions: Mapping[str, str], ranks_per_host: int = 8) -> Path:
    """Write one trace per rank and return the folder.

    Args:
        folder: where to.
        descriptions: what the program calls the groups of each dimension.
        ranks_per_host: neighbouring ranks share a host.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(int(np.prod(list(SIZES.values())))):
        trace = TraceBuilder(rank, 8, host_name=f"node{rank // ranks_per_host}")
        for step in range(STEPS):
            trace.step(step, step * STEP_US, STEP_US)
            for number, message in enumerate(MESSAGES):
                _add(trace, rank, step * STEP_US, number, message, descriptions[message.dimension])
            trace.op("aten::mm", step * STEP_US + 100, 5).launch(step * 100 + 99, step * STEP_US + 101, 2)
            trace.kernel("gemm", step * STEP_US + 110, 80, step * 100 + 99)
        trace.write(folder / f"rank{rank}.json.gz")
    return folder


def _add(trace: TraceBuilder, rank: int, begin_us: int, number: int, message: Message, description: str) -> None:
    correlation = begin_us // STEP_US * 100 + number + 1
    start = begin_us + message.at_us
    trace.record_param_comms(
        message.operator,
        start - 5,
        4,
        in_elements=message.elements,
        out_elements=message.elements,
        group=f"{message.dimension}0",
        group_description=description,
        ranks=members(rank, message.dimension),
    )
    trace.launch(correlation, start - 4, 1)
    trace.kernel(message.kernel, start, message.took_us, correlation, stream=20)
