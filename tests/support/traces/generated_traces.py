"""Hypothesis strategies for small traces with everything that metrics.md sections 1 to 4 define.

Times are drawn from a short grid, so that spans nest, cross, touch and coincide often, then put at
the scale of real traces with up to five decimals. Only steps never start together: which of two
such steps comes first, no rule says.
"""

from collections.abc import Sequence
from decimal import ROUND_CEILING, Decimal
from typing import Any, Final

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

Document = dict[str, Any]
Event = dict[str, Any]

slow_to_generate = settings(
    max_examples=min(100, settings().max_examples),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""For tests that write and read or analyse a whole trace per example, which takes a tenth of a second or more."""

GRID: Final = 60
UNITS: Final = tuple(map(Decimal, ("1", "0.1", "0.013")))
"""Microseconds per grid point."""
FRACTIONS: Final = tuple(map(Decimal, ("0", "0.001", "0.0005", "0.0015", "0.12345")))
"""Offsets that are sometimes added to a time: whole nanoseconds, ties, and digits beyond three."""
ORIGINS: Final = tuple(map(Decimal, ("0", "3743411230047.485", "1682725898236567")))
BASES: Final = (None, 0, 1_767_189_312_000_000_000)
DAMAGED_DURATIONS: Final = (None, Decimal("-1.5"), -3)

HOST: Final = 1000
THREADS: Final = (1, 2)
STREAMS: Final = (7, 8)
CORRELATIONS: Final = st.integers(1, 6)

OPERATORS: Final = (
    "aten::mm",
    "aten::copy_",
    "autograd::engine::evaluate_function: AddmmBackward0",
    "c10d::allreduce_",
    "_c10d_functional::wait_tensor",
    "record_param_comms",
    "nccl:all_reduce",
    "gloo:send",
)
ANNOTATIONS: Final = (
    "nccl:all_reduce",
    "xccl:broadcast",
    "gloo:all_reduce",
    "gloo:recv",
    "mpi:reduce",
    "ucc:barrier",
    "DistributedDataParallel.forward",
    "Optimizer.step#Adam.step",
    "perfkit.forward",
)
MARKS: Final = ("Optimizer.step#", "enumerate(DataLoader)", "perfkit.data_loading", "ProfilerStep#")
LOADS: Final = (
    "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
    "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
    "perfkit.data_loading",
)
KERNELS: Final = (
    "ampere_sgemm_128x64_tn",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ncclKernel_x> >(float*)",
    "hipblasGemm",
    "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)",
    "void vllm::cross_device_reduce_1stage<float, 8>(vllm::RankData*)",
)
LAUNCHES: Final = ("cuda_runtime", "cuda_driver", "hip_runtime", "xpu_runtime")
NOT_WORK: Final = ("gpu_user_annotation", "cuda_sync", "overhead")


class Clock:
    """Draws times with one origin and scale, so that events of one trace touch and overlap."""

    def __init__(self, origin: Decimal, unit: Decimal) -> None:
        self.origin = origin
        self.unit = unit

    def at(self, point: int, fraction: Decimal) -> Decimal:
        return self.origin + point * self.unit + fraction

    def fractions(self) -> st.SearchStrategy[Decimal]:
        return st.one_of(st.just(Decimal(0)), st.sampled_from(FRACTIONS))

    def starts(self) -> st.SearchStrategy[Decimal]:
        return st.builds(self.at, st.integers(0, GRID), self.fractions())

    def durations(self) -> st.SearchStrategy[Decimal | int | None]:
        def length(points: int, fraction: Decimal) -> Decimal:
            return points * self.unit + fraction

        short = st.builds(length, st.integers(0, 8), self.fractions())
        long = st.builds(length, st.integers(8, GRID), self.fractions())
        return st.one_of(short, short, short, long, long, st.sampled_from(DAMAGED_DURATIONS))

    def events(
        self,
        categories: Sequence[str],
        names: Sequence[str],
        pid: int,
        tids: Sequence[int],
        args: st.SearchStrategy[dict[str, int]] | None = None,
    ) -> st.SearchStrategy[Event]:
        """Complete events; a duration of None is omitted."""
        return st.fixed_dictionaries(
            {
                "ph": st.just("X"),
                "cat": st.sampled_from(categories),
                "name": st.sampled_from(names),
                "pid": st.just(pid),
                "tid": st.sampled_from(tids),
                "ts": self.starts(),
                "dur": self.durations(),
                "args": st.just({}) if args is None else args,
            }
        ).map(without_none)


def without_none(event: Event) -> Event:
    return {k: v for k, v in event.items() if v is not None}


def as_list(events: st.SearchStrategy[Event]) -> st.SearchStrategy[list[Event]]:
    return events.map(lambda event: [event])


def correlated() -> st.SearchStrategy[dict[str, int]]:
    return st.fixed_dictionaries({"correlation": CORRELATIONS})


def host_events(clock: Clock) -> st.SearchStrategy[Event]:
    """Operators of two threads (overlapping ones too), annotations, loads and Python frames."""
    operators = clock.events(("cpu_op", "cpu_op", "Operator"), OPERATORS, HOST, THREADS)
    annotations = clock.events(("user_annotation",), ANNOTATIONS, HOST, (*THREADS, 50))
    loads = clock.events(("user_annotation",), LOADS, HOST, THREADS)
    frames = clock.events(("python_function",), ("train.py(7): main",), HOST, THREADS)
    launches = clock.events(LAUNCHES, ("launch",), HOST, THREADS, correlated())
    return st.one_of(operators, operators, annotations, loads, launches, frames)


def device_events(clock: Clock) -> st.SearchStrategy[Event]:
    """Kernels and copies with a launch's id, an id without a launch, or none; markers on a stream."""
    args = st.one_of(correlated(), correlated(), st.just({"correlation": 999}), st.just({"stream": 7}))
    kernels = clock.events(("kernel",), KERNELS, 0, STREAMS, args)
    copies = clock.events(("gpu_memcpy", "gpu_memset"), ("Memcpy DtoD",), 0, STREAMS, args)
    return st.one_of(kernels, kernels, copies, not_work(clock))


@st.composite
def launched(draw: st.DrawFn, clock: Clock) -> list[Event]:
    """Return an operator, a launch that begins with or within it, and the launched activity."""
    number = {"correlation": draw(CORRELATIONS)}
    thread = (draw(st.sampled_from(THREADS)),)
    operator = draw(clock.events(("cpu_op",), OPERATORS, HOST, thread))
    launch = draw(clock.events(LAUNCHES, ("launch",), HOST, thread, st.just(number)))
    launch["ts"] = operator["ts"] + draw(st.integers(0, 4)) * clock.unit
    work = draw(clock.events(("kernel", "gpu_memcpy"), KERNELS, 0, STREAMS, st.just(number)))
    work["ts"] = launch["ts"] + draw(st.integers(0, 30)) * clock.unit
    return [operator, launch, work]


def not_work(clock: Clock) -> st.SearchStrategy[Event]:
    """Events on a device's streams that are not work."""
    return clock.events(NOT_WORK, ("nccl:all_reduce", "ProfilerStep#1"), 0, STREAMS)


@st.composite
def step_events(draw: st.DrawFn, clock: Clock) -> list[Event]:
    """Return up to four `ProfilerStep`s in any order, apart, touching, overlapping or nested."""
    points = draw(st.lists(st.integers(0, GRID // 2), max_size=4, unique=True))
    first = draw(st.integers(0, 600))
    numbers = {point: first + i for i, point in enumerate(sorted(points))}
    return [
        without_none(
            {
                "ph": "X",
                "cat": "user_annotation",
                "name": f"ProfilerStep#{numbers[point]}",
                "pid": HOST,
                "tid": THREADS[0],
                "ts": clock.at(point, Decimal(0)),
                "dur": draw(clock.durations()),
            }
        )
        for point in points
    ]


def in_order(work: list[Event]) -> None:
    """Move device work to when it can have run: after its launch, and one after the other in each stream."""
    launched: dict[int, Decimal] = {}
    for event in work:
        if event["cat"] in LAUNCHES:
            number = event["args"]["correlation"]
            launched[number] = min(event["ts"], launched.get(number, event["ts"]))
    activities = [event for event in work if event["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
    begins: list[Decimal] = []
    for event in activities:
        number = event["args"].get("correlation", -1)
        begins.append(launched[number] if number in launched else event["ts"])
    free: dict[int, Decimal] = {}
    for event, begin in sorted(zip(activities, begins, strict=True), key=lambda pair: pair[1]):
        event["ts"] = max(event["ts"], begin, free.get(event["tid"], begin))
        # What is rounded to nanoseconds, start and duration each, stays in order.
        end = event["ts"] + max(event.get("dur") or Decimal(0), Decimal(0)) + Decimal("0.001")
        free[event["tid"]] = end.quantize(Decimal("0.001"), ROUND_CEILING)


@st.composite
def traces(draw: st.DrawFn, *, device: bool | None = None, max_groups: int = 24) -> Document:
    """Return a trace document.

    Args:
        draw: Supplied by Hypothesis.
        device: Whether device activities may occur; None draws it.
        max_groups: Largest number of draws, of one to three events each; steps not counted.
    """
    clock = Clock(draw(st.sampled_from(ORIGINS)), draw(st.sampled_from(UNITS)))
    with_device = draw(st.sampled_from((True, True, False))) if device is None else device
    single = device_events(clock) if with_device else not_work(clock)
    kinds = [as_list(host_events(clock)), as_list(host_events(clock)), as_list(single)]
    groups = st.lists(
        st.one_of(*kinds, *([launched(clock)] if with_device else [])),
        min_size=draw(st.sampled_from((0, max_groups // 3, max_groups // 2))),
        max_size=max_groups,
    )
    work = [event for group in draw(groups) for event in group]
    steps = draw(step_events(clock))
    if not steps:  # nothing else marks any either: the reference knows no others
        work = [event for event in work if not event["name"].startswith(MARKS)]
    in_order(work)
    base = draw(st.sampled_from(BASES))
    header: Document = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": 1}}
    header |= {} if base is None else {"baseTimeNanoseconds": base}
    return header | {"traceEvents": draw(st.sampled_from((steps + work, work + steps)))}


def cpu_traces() -> st.SearchStrategy[Document]:
    """Traces without any device activity."""
    return traces(device=False)


def device_traces() -> st.SearchStrategy[Document]:
    """Traces in which device activities may occur."""
    return traces(device=True)
