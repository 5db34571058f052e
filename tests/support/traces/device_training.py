"""Traces of data-parallel training on devices whose truth is known: who is late, by how much, and what waits for it.

A device starts a kernel once it was launched and the stream is free; a collective takes its time once the last rank
has joined. All times are microseconds.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.traces.trace_builder import TraceBuilder, collective_args

LAUNCH: Final = 8
_COMPUTE, _NETWORK = 7, 20


class Device:
    """A rank: its host's clock, the ends of its two streams, and the trace of both."""

    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.trace = rank, TraceBuilder(rank=rank, world_size=ranks, host_name="node0", flows=False)
        self.now, self.busy, self.network = 1000, 0, 0
        self._launches = 0

    def load(self, us: int) -> None:
        """Wait for the next batch."""
        self.trace.data_loading(self.now, us)
        self.now += us

    def kernels(self, name: str, us: int, count: int = 1, operator: str = "aten::mm") -> None:
        """Launch kernels of one operator each."""
        for _ in range(count):
            self.trace.op(operator, self.now, LAUNCH - 1).kernel(name, self._begin(), us, self._launch(), _COMPUTE)
            self.busy = self._begin() + us
            self.now += LAUNCH

    def copy(self, us: int, kind: str) -> None:
        """Launch a copy of memory, of a kind as CUPTI writes it, or a `Memset (Device)`."""
        category = "gpu_memset" if kind.startswith("Memset") else "gpu_memcpy"
        self.trace.op("aten::copy_", self.now, LAUNCH - 1)
        self.trace.device(category, kind, self._begin(), us, self._launch(), _COMPUTE)
        self.busy = self._begin() + us
        self.now += LAUNCH

    def work(self, us: int, name: str) -> None:
        """Run a Python function on the host."""
        self.trace.python_function(name, self.now, us)
        self.now += us

    def item(self) -> None:
        """Wait for the device, as reading a loss does."""
        end = max(self.now + 3, self.busy)
        self.trace.op("aten::item", self.now, end - self.now + 2)
        self.trace.launch(self._launch_number(), self.now + 1, end - self.now, name="cudaStreamSynchronize")
        self.now = end + 3

    def _begin(self) -> int:
        return max(self.now + LAUNCH, self.busy)

    def _launch(self) -> int:
        number = self._launch_number()
        self.trace.launch(number, self.now + 1, LAUNCH - 3)
        return number

    def _launch_number(self) -> int:
        self._launches += 1
        return self._launches


def communicate(
    devices: Sequence[Device],
    us: int,
    what: str = "allreduce",
    elements: int = 1_000_000,
    *,
    awaited: bool = True,
    group: tuple[str, str] = ("0", "default_pg"),
) -> None:
    """Let the ranks of a group communicate behind what they compute, and compute on behind that, or beside it.

    Args:
        devices: the ranks.
        us: how long it takes once all have joined.
        what: the operation.
        elements: number of values.
        awaited: whether they compute on behind it.
        group: name and description of the group.
    """
    members = [one.rank for one in devices]
    joined = []
    for one in devices:
        args = collective_args(what, elements, elements, "Float", *group, members, None)
        one.trace.op("record_param_comms", one.now, 2 * LAUNCH, args=args)
        joined.append((max(one._begin(), one.network), one._launch(), args))
        one.now += 2 * LAUNCH
    end = max(begin for begin, _, _ in joined) + us
    kernel = {"allreduce": "AllReduce_Sum_f32_RING_LL", "broadcast": "Broadcast_RING_LL"}[what]
    for one, (begin, number, args) in zip(devices, joined, strict=True):
        one.trace.kernel(f"ncclDevKernel_{kernel}(x)", begin, end - begin, number, _NETWORK, args=args)
        one.network = end
        one.busy = end if awaited else one.busy


Part = Callable[[Device, int], None]
"""What a rank does in a step of this number, counted from 0."""


class Beside(NamedTuple):
    """An all-reduce that takes so long, and for which no rank waits: it computes on."""

    us: int


def train(
    folder: Path,
    ranks: int,
    steps: int,
    parts: Sequence[Part | int | Beside],
    left_out: Sequence[int] = (),
    first_step: int = 3,
    begins: Mapping[int, int] | None = None,
) -> Path:
    """Write the traces of a run whose steps consist of these parts, and return its folder.

    Args:
        folder: where to.
        ranks: number of ranks.
        steps: number of steps.
        parts: what each rank does; a number is an all-reduce that takes so long.
        left_out: ranks that get no trace.
        first_step: number of the first step.
        begins: how much later than the others some ranks begin to record.
    """
    devices = [Device(rank, ranks) for rank in range(ranks)]
    for one in devices:
        one.now += 1_000_000 * (first_step - 3) + (begins or {}).get(one.rank, 0)
    for step in range(steps):
        begun = [one.now for one in devices]
        for part in parts:
            if isinstance(part, int):
                communicate(devices, part)
                continue
            if isinstance(part, Beside):
                communicate(devices, part.us, awaited=False)
                continue
            for one in devices:
                part(one, step)
        for one, begin in zip(devices, begun, strict=True):
            one.trace.step(step + first_step, begin, one.now - begin)
            one.now += 5
    return save(folder, devices, left_out)


def save(folder: Path, devices: Sequence[Device], left_out: Sequence[int] = ()) -> Path:
    """Write the traces of a run, but those of ranks that are left out, and return its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in devices:
        if one.rank not in left_out:
            one.trace.write(folder / f"rank{one.rank}.json")
    return folder
