"""What the reader keeps of kernels: grid, block, occupancy."""

from pathlib import Path

import numpy as np

from perfkit.trace.events import EventKind, KernelLaunch
from perfkit.trace.reader import read_trace
from tests.support.traces.trace_builder import TraceBuilder

GRID = {"grid": [4, 2, 1], "block": [128, 1, 1], "est. achieved occupancy %": 31}


def test_launches_of_kernels(tmp_path: Path) -> None:
    builder = TraceBuilder().step(0, 0, 1000).kernel("a", 10, 5, args=GRID).op("aten::mm", 1, 2)
    builder.device("gpu_memcpy", "Memcpy HtoD", 20, 5, None, 7, args={"bytes": 4096})
    builder.kernel("b", 40, 5, args=GRID).kernel("c", 50, 5, args=GRID | {"est. achieved occupancy %": 12.5})
    builder.kernel("d", 60, 5)
    events = read_trace(builder.write(tmp_path / "trace.json"), slice_bytes=500).events
    kernels = events.rows(EventKind.KERNEL)
    args = events.device_args
    assert args.launch_of(kernels).tolist() == [0, 0, 1, 2]
    assert args.launches[0] == KernelLaunch(grid=(4, 2, 1), block=(128, 1, 1), occupancy_percent=31.0)
    assert [launch.occupancy_percent for launch in args.launches] == [31.0, 12.5, None]
    assert args.launches[2] == KernelLaunch()
    assert args.launch_of(events.rows(EventKind.COPY)).tolist() == [-1]
    assert args.launch_of(np.array([-1])).tolist() == [-1]


def test_damage_is_unknown_not_an_error(tmp_path: Path) -> None:
    damaged = {"grid": [1, 2], "block": [1, -2, 3], "est. achieved occupancy %": "much"}
    builder = TraceBuilder().kernel("a", 10, 5, args=damaged)
    events = read_trace(builder.write(tmp_path / "trace.json")).events
    assert events.device_args.launches == (KernelLaunch(),)
