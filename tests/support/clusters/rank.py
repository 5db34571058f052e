"""A rank: a host that launches, a device with streams, and the trace that the profiler writes of both.

The host's threads never run at once: the main thread waits while autograd's works. A launch takes time, and waits while
the device's queue is full. A collective occupies its stream from its arrival to the end that all its members share.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Final, NamedTuple

from tests.support.clusters.events import Event, Process, Stream, World
from tests.support.traces.trace_builder import TraceBuilder, collective_args

MAIN, AUTOGRAD = 1, 2
COMPUTE: Final = 7
_LAUNCH_US, _CALL_US, _LATENCY_US, _HANDOVER_US = 6, 2, 5, 20
_ELEMENTS: Final = 1 << 20
_BLOCKS: Final = 512
_KERNELS: Final = {
    "allreduce": "AllReduce_Sum_f32_RING_LL",
    "_allgather_base": "AllGather_RING_LL",
    "_reduce_scatter_base": "ReduceScatter_Sum_f32_RING_LL",
    "send": "SendRecv",
    "recv": "SendRecv",
}


class Group(NamedTuple):
    """A process group."""

    name: str
    description: str
    ranks: tuple[int, ...]


class KernelFaults(NamedTuple):
    """By the begin of kernels' names, factors of their time."""

    slower: Mapping[str, float] = {}
    """For as much work."""
    larger: Mapping[str, float] = {}
    """Because each works on so much more."""
    more: Mapping[str, float] = {}
    """Because they run so much more often."""
    has_grids: bool = True
    """Whether the profiler records how much each works on."""

    @staticmethod
    def of(faults: Mapping[str, float], name: str) -> float:
        """Return the factor of a kernel."""
        return next((factor for begin, factor in faults.items() if name.startswith(begin)), 1.0)


Network = Callable[[tuple[int, ...], int, int, object], int]
"""Returns how long a transfer takes (us): of the ranks that take part, the step, how long it takes usually, and what it
is called."""


class Meeting:
    """A collective of some ranks: it ends on all of them so long after the last has arrived."""

    def __init__(self, members: int, us: int) -> None:
        self.missing, self.us = members, us
        self.complete = Event()


class Rank:
    """One rank.

    Args:
        world: the clock of all ranks.
        number: the rank.
        world_size: number of ranks.
        host: name of its host.
        clock_us: by how much the clock of the host is ahead.
        device_factor: by which its kernels take longer.
        host_factor: by which all that its host does takes longer.
        queue: launches that the device's queue holds.
        meetings: those of all ranks by key.
        network: between the ranks.
    """

    def __init__(
        self,
        world: World,
        number: int,
        world_size: int,
        *,
        host: str,
        clock_us: int,
        device_factor: float,
        host_factor: float,
        queue: int,
        meetings: dict[Any, Meeting],
        network: Network,
        kernel_faults: KernelFaults = KernelFaults(),  # noqa: B008
    ) -> None:
        self.world, self.number, self._clock_us = world, number, clock_us
        self.world_size, self._kernel_faults, self._due = world_size, kernel_faults, defaultdict[str, float](float)
        self._device_factor, self._host_factor, self._queue = device_factor, host_factor, queue
        self.trace = TraceBuilder(number, world_size, host_name=host, flows=False)
        self.thread = MAIN
        self.recording = False
        self.begun_us = 0
        """When the recording began, by the true clock."""
        self.train_step = 0
        self._meetings, self._network = meetings, network
        self._random = Random(number)  # noqa: S311
        self._streams: dict[int, Stream] = {}
        self._pending, self._correlation = 0, 0
        self._taken = Event()
        self._counts = defaultdict[Any, int](int)

    # ---- host ------------------------------------------------------------------------------------------------------

    @property
    def here(self) -> int:
        """The time by the rank's own clock (us)."""
        return self.world.now + self._clock_us

    def work(self, us: int, name: str) -> Process:
        """Run a Python function."""
        yield from self._host_span(us, lambda start, took: self.trace.python_function(name, start, took))

    def load(self, us: int) -> Process:
        """Wait for the next batch."""
        yield from self._host_span(us, lambda start, took: self.trace.data_loading(start, took))

    def _host_span(self, us: int, write: Any) -> Process:
        start = self.here
        yield max(1, round(us * self._host_factor))
        if self.recording:
            write(start, self.here - start)

    def hand_over(self, thread: int) -> Process:
        """Go on in another thread."""
        yield _HANDOVER_US
        self.thread = thread

    def synchronise(self, name: str = "cudaStreamSynchronize", operator: str | None = "aten::item") -> Process:
        """Wait for the compute stream, or for the whole device."""
        start = self.here
        streams = [COMPUTE] if name == "cudaStreamSynchronize" else [*self._streams]
        for stream in streams:
            yield self._mark(stream)
        yield _CALL_US
        if self.recording:
            if operator:
                self.trace.op(operator, start - 1, self.here - start + 2, self.thread)
            self.trace.launch(self._next(), start, self.here - start, self.thread, name=name)
        yield 2

    def _call(self, name: str) -> Process:
        yield 1
        start = self.here
        yield max(1, round(_CALL_US * self._host_factor))
        if self.recording:
            self.trace.launch(self._next(), start, self.here - start, self.thread, name=name)

    def _next(self) -> int:
        self._correlation += 1
        return self._correlation

    # ---- device ----------------------------------------------------------------------------------------------------

    def kernel(self, us: int, name: str = "gemm", *, operator: str = "aten::mm", stream: int = COMPUTE) -> Process:
        """Launch a kernel, of which the length varies a little."""
        faults = self._kernel_faults
        larger = faults.of(faults.larger, name)
        args = {"grid": [round(_BLOCKS * larger), 1, 1], "block": [256, 1, 1]} if faults.has_grids else None
        self._due[name] += faults.of(faults.more, name)
        while self._due[name] >= 1:
            self._due[name] -= 1
            factor = self._device_factor * larger * faults.of(faults.slower, name) * self._random.uniform(0.98, 1.02)
            yield from self._launch(stream, name, operator, max(1, round(us * factor)), None, args)

    def collective(
        self, key: Any, what: str, group: Group, us: int, stream: int, peer: int | None = None, size: float = 1.0
    ) -> Process:
        """Launch a collective; ranks meet that give the same key for the same time. Its time grows with its size."""
        self._counts[key] += 1
        place = key, self._counts[key]
        if place not in self._meetings:
            members = group.ranks if peer is None else tuple(sorted((self.number, peer)))
            takes_us = self._network(members, self.train_step, round(us * size), place)
            self._meetings[place] = Meeting(len(members), takes_us)
        meeting, elements = self._meetings[place], round(_ELEMENTS * size)
        args = collective_args(what, elements, elements, "Float", *group, None)
        if peer is not None:
            args["Dst Rank" if what == "send" else "Src Rank"] = peer
        name = f"ncclDevKernel_{_KERNELS[what]}(ncclDevKernelArgsStorage<4096ul>)"
        yield from self._launch(stream, name, "record_param_comms", 0, meeting, args)

    def record(self, stream: int) -> "Recorded":
        """Record an event on a stream; `yield from` its `call`."""
        return Recorded(self, stream)

    def wait(self, stream: int, recorded: Event) -> Process:
        """Let a stream wait for an event."""
        yield from self._call("cudaStreamWaitEvent")
        self._stream(stream).put(_until(recorded))

    def _launch(
        self, stream: int, name: str, operator: str, us: int, meeting: Meeting | None, args: dict[str, Any] | None
    ) -> Process:
        begin = self.here
        yield max(1, round(2 * self._host_factor))
        start = self.here
        while self._pending >= self._queue:
            yield self._taken
        correlation, recorded = self._next(), self.recording
        self._pending += 1
        ready = self.world.now + _LATENCY_US
        self._stream(stream).put(self._running(stream, name, us, meeting, args, (correlation, ready)))
        yield max(1, round(_LAUNCH_US * self._host_factor))
        if recorded:
            self.trace.launch(correlation, start, self.here - start, self.thread)
        yield 1
        if recorded:
            self.trace.op(operator, begin, self.here - begin, self.thread, args=args if meeting else None)

    def _running(
        self,
        stream: int,
        name: str,
        us: int,
        meeting: Meeting | None,
        args: dict[str, Any] | None,
        launched: tuple[int, int],
    ) -> Process:
        correlation, ready = launched
        if self.world.now < ready:
            yield ready - self.world.now
        start, recorded = self.here, self.recording
        if meeting is not None:
            meeting.missing -= 1
            if not meeting.missing:
                self.world.happen(meeting.complete)
            yield meeting.complete
            us = meeting.us
        yield max(us, 1)
        if recorded:
            self.trace.kernel(name, start, self.here - start, correlation, stream, args=args)
        self._pending -= 1
        taken, self._taken = self._taken, Event()
        self.world.happen(taken)
        yield 1

    def _stream(self, number: int) -> Stream:
        if number not in self._streams:
            self._streams[number] = Stream(self.world, number)
        return self._streams[number]

    def _mark(self, stream: int) -> Event:
        reached = Event()
        self._stream(stream).put(_reach(self.world, reached))
        return reached


class Recorded(Event):
    """An event that happens when a stream reaches it."""

    def __init__(self, rank: Rank, stream: int) -> None:
        super().__init__()
        self._rank, self._stream = rank, stream

    def call(self) -> Process:
        """Record it."""
        yield from self._rank._call("cudaEventRecord")
        self._rank._stream(self._stream).put(_reach(self._rank.world, self))


def _until(event: Event) -> Process:
    if not event.happened:
        yield event


def _reach(world: World, event: Event) -> Process:
    world.happen(event)
    yield from ()


def after(rank: Rank, stream: int, then: Sequence[int]) -> Process:
    """Let streams wait for all that was put into another one so far."""
    recorded = rank.record(stream)
    yield from recorded.call()
    for other in then:
        yield from rank.wait(other, recorded)
