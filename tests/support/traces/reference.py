"""A second, slow and obvious implementation of metrics.md sections 1 to 4, to check perfkit
against.

It shares no code with the product and takes the other road wherever there are two: plain Python
objects instead of arrays, fractions instead of scaled integers, and one walk over all boundaries
that asks, between any two of them, what runs there, instead of an algebra of intervals. One
function a rule; the sentence it follows is quoted above it. Where the text leaves a choice, the
comment begins with "Choice:".
"""

import gzip
import json
import math
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal

Category = Literal["compute", "communication", "memcpy", "data_loading", "overhead"]
ORDER: Final[tuple[Category, ...]] = (
    "compute",
    "communication",
    "memcpy",
    "data_loading",
    "overhead",
)
"""Section 4: "Every instant of a step's window goes to the first category that applies"."""

Thread = tuple[object, object]
"""(pid, tid), as they stand in the trace."""


@dataclass(frozen=True)
class Event:
    """A complete event (`ph` X) of a kind that the metrics speak of: a half-open span `[start,
    end)` in absolute ns.
    """

    position: int
    """Place among the trace's events."""
    category: str
    name: str
    thread: Thread
    start: int
    end: int
    correlation: object = None

    @property
    def duration(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class ReferenceStep:
    """What metrics.md says of one step of one rank, all in nanoseconds."""

    step: int | None
    start_ns: int
    wall_ns: int
    exposed_ns: dict[Category, int]
    """All five; they sum to `wall_ns`."""
    total_ns: dict[Category, int]
    """The first four."""
    loads: list[int]
    """Durations of the outermost data-loading spans that began in the host's step, by start."""


def reference(source: str | Path | bytes | Mapping[str, Any], step_marker: str | None = None) -> list[ReferenceStep]:
    """Return the steps of a trace: a file (.json, .json.gz), its bytes, or the decoded document.

    Empty where the trace has neither steps nor any host operator or device activity.
    """
    trace = Trace(read_events(load(source)))
    steps = host_steps(trace, step_marker)
    windows = step_windows(trace, steps) if steps else whole_trace(trace)
    exposed, total = mean([sweep(one, windows) for one in by_device(trace, [s.start for s in steps])])
    loads = loads_by_step(outermost_loads(trace.data_loading), [s.start for s in steps], windows)
    return [
        ReferenceStep(w.step, w.start, w.end - w.start, exposed[i], total[i], loads[i]) for i, w in enumerate(windows)
    ]


# ---- reading -------------------------------------------------------------------------------------


def load(source: str | Path | bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    """Decode a trace leniently: invalid UTF-8 is replaced, control characters in strings are
    allowed.
    """
    if isinstance(source, Mapping):
        return source
    raw = source if isinstance(source, bytes) else Path(source).read_bytes()
    if raw.startswith(b"\x1f\x8b"):
        raw = gzip.decompress(raw)
    document = json.loads(raw.decode("utf-8", errors="replace"), strict=False, parse_float=Decimal)
    return {"traceEvents": document} if isinstance(document, list) else document


def read_events(document: Mapping[str, Any]) -> list[Event]:
    base = nanoseconds(Fraction(1, 1000), document.get("baseTimeNanoseconds")) or 0
    listed = document.get("traceEvents") or []
    found = (read_event(i, raw, base) for i, raw in enumerate(listed))
    until = recording_end(listed, base)
    return [within(event, until) for event in found if event is not None]


def recording_end(listed: Sequence[Any], base: int) -> int | None:
    """Section 2: "kineto's `Record Window End`". Choice: the last of several."""
    marks = [raw for raw in listed if isinstance(raw, dict) and raw.get("name") == "Record Window End"]
    times = [nanoseconds(Fraction(1), raw.get("ts")) for raw in marks if raw.get("ph") == "i"]
    return max((base + time for time in times if time is not None), default=None)


def within(event: Event, until: int | None) -> Event:
    """Section 2: "none of it, nor of the host, outlasts the recording". Here the host's; device work is checked by its
    streams.
    """
    on_device = event.category in KERNELS | COPIES or event.category.startswith("gpu_")
    if until is None or on_device or not event.start < until < event.end:
        return event
    return replace(event, end=until)


def read_event(position: int, raw: Any, base: int) -> Event | None:
    """Section 1: "Absolute time = `baseTimeNanoseconds` + ts"; "`ts` and `dur` are converted each
    by itself".

    "A negative or missing `dur` is a data-quality finding, not a crash". Choice: its span is empty;
    its start still counts. Choice: an event without a usable `ts` is left out.
    """
    if not isinstance(raw, dict) or raw.get("ph") != "X":
        return None
    start = nanoseconds(Fraction(1), raw.get("ts"))
    if start is None:
        return None
    duration = max(0, nanoseconds(Fraction(1), raw.get("dur")) or 0)
    args = raw.get("args")
    correlation = args.get("correlation") if isinstance(args, dict) else None
    return Event(
        position=position,
        category=str(raw.get("cat", "")).lower(),
        name=str(raw.get("name", "")),
        thread=(raw.get("pid"), raw.get("tid")),
        start=base + start,
        end=base + start + duration,
        correlation=correlation if isinstance(correlation, int | str) else None,
    )


def nanoseconds(microseconds_each: Fraction, value: object) -> int | None:
    """Section 1: "convert exactly (never through a float)"; "beyond three decimals: round half to
    even".
    """
    if isinstance(value, float) and math.isfinite(value):
        value = Decimal(repr(value))  # what JSON would have written for it
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if isinstance(value, Decimal) and not value.is_finite():
        return None
    # round() of a Fraction is half to even
    return round(Fraction(value) * microseconds_each * 1000)


# ---- section 2: kinds of events ------------------------------------------------------------------

# "`kernel`, `gpu_memcpy`, `gpu_memset` (and their names on other accelerators)";
# "`gpu_user_annotation` and `cuda_sync` are not device work". Choice: categories are compared
# without case; what kineto wrote before 2022 (`Kernel`, `Memcpy`, `Memset`, `Runtime`, beside the
# `Operator` that metrics.md names) counts, and MTIA's on-device events, which kineto has since made an
# alias of `kernel`.
KERNELS: Final = frozenset({"kernel", "mtia_ccp_events"})
COPIES: Final = frozenset({"gpu_memcpy", "gpu_memset", "memcpy", "memset"})
COPY_KERNELS: Final = ("dma_request", "__amd_rocclr_copy", "__amd_rocclr_fill")
MTIA_WAIT: Final = "event_wait"
"""Of category `mtia_ccp_events`, as everything on that device."""
OPERATORS: Final = frozenset({"cpu_op", "operator"})
LAUNCH: Final = re.compile(r"(\w+_)?(runtime|driver)")
"""`cuda_runtime`, `cuda_driver`, `hip*`, `xpu*`, `mtia*`, `privateuse1*`, and `Runtime` of old
traces.
"""

COMMUNICATION_OPERATOR: Final = re.compile(
    r"record_param_comms$|c10d::|_c10d_functional::|(nccl|gloo|mpi|ucc|xccl|hccl):"
)
"""Section 2: "`record_param_comms`, `c10d::*`, `_c10d_functional::*`, `nccl:*`, `gloo:*`, `mpi:*`,
`ucc:*`, `xccl:*`, `hccl:*`".
"""

COMMUNICATION_ANNOTATION: Final = re.compile(r"(gloo|mpi|ucc):")
"""Section 2, CPU-only: "Annotations `gloo:*`, `mpi:*`, `ucc:*` ... are communication for their
whole span".
"""

LAUNCHING_ANNOTATION: Final = re.compile(r"(nccl|gloo|mpi|ucc|xccl|hccl):")
"""Section 2: "the innermost host operator (or `nccl:*`-like annotation)"."""

DATA_LOADING: Final = re.compile(r"enumerate\(DataLoader\)#|perfkit\.data_loading$")
"""Section 2: "`enumerate(DataLoader)#…` annotations and ... perfkit's own `perfkit.data_loading`
annotation".
"""

COMPILING: Final = re.compile(r" \(dynamo_timed\)$|^(\w+\.)*compile_fx|^Inductor::compile")
"""Section 14: "torch.compile compiles"."""

PROFILER_STEP: Final = r"^ProfilerStep#(\d+)$"

COMM_KERNEL_PATTERNS: Final[tuple[tuple[str, str], ...]] = (
    # (regular expression, source). Tried at the start of the kernel's own name and of its qualified
    # name; see `kernel_names`. NCCL >= 2.18 ncclDevKernel_AllReduce_Sum_f32_RING_LL; 2.8 to 2.17
    # ncclKernel_AllReduce_RING_LL_Sum_float; before that ncclAllReduceRingLLKernel_sum_f32; 2.27
    # symmetric ncclSymkDevKernel_*; RCCL ncclDevKernel_Generic, ncclDevKernel_Generic_4.
    (r"nccl\w*Kernel", "NCCL, RCCL: src/device/generate.py, src/device/symmetric/generate.py"),
    (r"_Z\d+nccl\w*Kernel", "the same, where a tool left the name mangled"),
    (r"mscclKernel", "MSCCL in RCCL: mscclKernel_<op>_<type>_<protocol>"),
    (r"mscclpp(::|_)", "MSCCL++: kernels in namespace mscclpp"),
    (r"mcclKernel", "MCCL, Moore Threads' fork of NCCL: mcclKernel_*"),
    (r"oneccl_", "oneCCL: SYCL kernel names `class oneccl_*` of collectives, barriers and copies"),
    (
        r"(allreduce|allgatherv?|reduce_scatter|alltoallv?)_(small|medium|large)_",
        "oneCCL: coll/algorithms/allreduce/sycl, allreduce_large_read_write_ipc",
    ),
    (r"cross_device_reduce_[12]stage", "vLLM, SGLang, AITER: custom_all_reduce.cuh"),
    (r"allreduce_prototype_(one|two)shot", "quickreduce in AITER, vLLM, SGLang"),
    (r"reduce_scatter_cross_device", "AITER: custom_all_reduce.cuh"),
    (r"c10d::(symmetric_memory|intra_node_comm|(nv|roc|i)shmem_extension)::", "PyTorch: barriers, signals, all-reduce"),
    (r"_?(one|two)_?shot_all_?reduce", "PyTorch: CUDASymmetricMemoryOps.cu; Triton examples"),
    (
        r"multimem_(one_shot_)?(all_reduce|reduce|all_gather|reduce_scatter)",
        "PyTorch: CUDASymmetricMemoryOps.cu, by NVLink multicast",
    ),
    (
        r"(oneShot|twoShot|oneshot|twoshot|hybridCubeMesh)All[rR]educe",
        "PyTorch intra-node comm, TensorRT-LLM, FlashInfer (multi-node NVLink)",
    ),
    (r"lamport_style_one_shot_all_reduce", "TensorRT-LLM: customAllReduceKernels.cu"),
    (
        r"(moe\w*_)?allreduce_fusion_kernel",
        "FlashInfer, TensorRT-LLM: allreduce_fusion_kernel_{oneshot_lamport,twoshot_sync}",
    ),
    (r"nvshmem(i|x|ix)?_", "NVSHMEM: names with its prefixes"),
    (r"(nvshmem|rocshmem|ishmem)\w*::", "NVSHMEM, rocSHMEM, Intel SHMEM namespaces"),
    (r"rocshmem_|ishmemi?_", "rocSHMEM, Intel SHMEM"),
    (
        r"(\w+::)*(deep_ep|dpsk::ep|internode(_ll)?|intranode|hybrid_ep)::",
        "DeepEP: deep_ep::{intranode,internode,internode_ll}::{dispatch,…}",
    ),
    (r"Ep(Dispatch|Combine)", "mori: Ep{Dispatch,Combine}{IntraNode,InterNode}Kernel"),
    (r"moeA2A(Dispatch|Combine)Kernel", "TensorRT-LLM: moeAlltoAllKernels.cu"),
    (r"moeAllToAllKernel|multiGpuBarrierKernel", "TensorRT-LLM: fusedMoeCommKernels.cu, customAllReduceKernels.cu"),
    (r"(meta::)?comms::pipes::", "torchcomms: comms/pipes/collectives"),
    (r"a2a_(dispatch|combine)_(send|recv)_kernel", "pplx-garden"),
    (r"lowPrecision\w*AllReduce", "TensorRT-LLM: customLowPrecisionAllReduceKernels.cu"),
    (r"aiter::allgather_", "AITER"),
    (r"\w+_on_stream_kernel", "NVSHMEM"),
    (r"cncl", "CNCL"),
    (r"k?userbuffers_", "Transformer Engine: userbuffers.cu"),
)
"""Section 2: "its name matches the rules table (NCCL, RCCL, oneCCL, custom all-reduce …)"."""

LOCAL_KERNELS: Final = re.compile(r"(\w+::)*get_dispatch_layout$|(\w+::)*hybrid_ep::\w*(scan|permute)")
"""Kernels of communication libraries that work on their own device alone."""

_COMM_KERNELS: Final = [re.compile(pattern) for pattern, _ in COMM_KERNEL_PATTERNS]


def kernel_names(name: str) -> tuple[str, str]:
    """Return a kernel's qualified name and its last part, without return type, template arguments
    and parameters.

    Only the kernel's own name decides: `at::native::reduce_kernel<…>`, `hipblasGemm` or a template
    argument that mentions NCCL are not communication.
    """
    bare = re.split(r"[<(]", name.replace("(anonymous namespace)::", ""), maxsplit=1)[0].strip()
    qualified = bare.split(" ")[-1]
    return qualified, qualified.rsplit("::", 1)[-1]


def is_communication_kernel_name(name: str) -> bool:
    names = kernel_names(name)
    return not LOCAL_KERNELS.match(names[0]) and any(p.match(one) for p in _COMM_KERNELS for one in names)


def is_legacy_annotation(event: Event) -> bool:
    """Choice: before annotations had a category of their own, PyTorch wrote steps and loader spans
    as `Operator`.
    """
    return event.category == "operator" and bool(re.match(PROFILER_STEP, event.name) or DATA_LOADING.match(event.name))


class Trace:
    """The events of a trace, sorted into the kinds of section 2."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.annotations = [e for e in events if e.category == "user_annotation" or is_legacy_annotation(e)]
        self.operators = [e for e in events if e.category in OPERATORS and not is_legacy_annotation(e)]
        self.device = [
            e for e in events if (e.category in KERNELS and not e.name.startswith(MTIA_WAIT)) or e.category in COPIES
        ]
        self.launches = earliest_launches(e for e in events if LAUNCH.fullmatch(e.category))
        self.compiling = [e for e in (*self.operators, *self.annotations) if COMPILING.search(e.name)]
        self.data_loading = [e for e in self.annotations if DATA_LOADING.match(e.name)]
        launchers = [e for e in self.annotations if LAUNCHING_ANNOTATION.match(e.name)]
        self.launchers_by_thread = by_thread([*self.operators, *launchers])

    def launch_of(self, activity: Event) -> Event | None:
        return None if activity.correlation is None else self.launches.get(activity.correlation)


def by_thread(events: Iterable[Event]) -> dict[Thread, list[Event]]:
    """Group by thread, each group from the outermost (earliest started) to the innermost."""
    threads: dict[Thread, list[Event]] = defaultdict(list)
    for event in sorted(events, key=depth):
        threads[event.thread].append(event)
    return threads


def earliest_launches(launches: Iterable[Event]) -> dict[object, Event]:
    """Section 2: "joined to device activity by `args.correlation` (several launches with one id:
    the earliest)".

    Choice: of several that start together, the first in the trace.
    """
    first: dict[object, Event] = {}
    for launch in sorted(launches, key=lambda e: (e.start, e.position)):
        if launch.correlation is not None:
            first.setdefault(launch.correlation, launch)
    return first


def depth(event: Event) -> tuple[int, int, int]:
    """Sort key of nesting; the largest is the innermost.

    Section 2: "of several: the latest started, of those the shortest". Choice: of those the later
    in the trace, since PyTorch writes an operator when it begins, the parent before the child.
    """
    return (event.start, -event.duration, event.position)


def innermost_at(instant: int, outer_to_inner: Sequence[Event]) -> Event | None:
    """Return the innermost event that runs at `instant`: started, and not ended (spans are
    half-open).
    """
    started = bisect_right(outer_to_inner, instant, key=lambda e: e.start)
    return next((e for e in reversed(outer_to_inner[:started]) if e.end > instant), None)


def is_communication_kernel(kernel: Event, trace: Trace) -> bool:
    """Section 2: "a device kernel is communication if its name matches the rules table …, or if the
    innermost host operator (or `nccl:*`-like annotation) running at the start of its launch, on the
    launching thread …, is a communication operator".
    """
    if is_communication_kernel_name(kernel.name):
        return True
    launch = trace.launch_of(kernel)
    if launch is None:
        return False
    launcher = innermost_at(launch.start, trace.launchers_by_thread.get(launch.thread, []))
    return launcher is not None and bool(COMMUNICATION_OPERATOR.match(launcher.name))


def device_category(activity: Event, trace: Trace) -> Category:
    """Section 2: "Every other kernel is compute. `gpu_memcpy` and `gpu_memset` are memcpy"."""
    if activity.category in COPIES or activity.name.startswith(COPY_KERNELS):
        return "memcpy"
    return "communication" if is_communication_kernel(activity, trace) else "compute"


def contains(outer: Event, inner: Event) -> bool:
    """Whether `inner` lies within `outer` on the same thread (ends included)."""
    return outer.thread == inner.thread and outer.start <= inner.start and inner.end <= outer.end


def operator_category(operator: Event, data_loading: Sequence[Event], compiling: Sequence[Event]) -> Category:
    """Section 2, CPU-only: "communication by the names above …, else compute; but an operator
    inside a data-loading span on its own thread belongs to data loading", and one by which torch
    compiles, or inside it, is no work.
    """
    if any(contains(span, operator) for span in data_loading):
        return "data_loading"
    if COMMUNICATION_OPERATOR.match(operator.name):
        return "communication"
    return "overhead" if any(contains(span, operator) for span in compiling) else "compute"


# ---- section 3: steps ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Window:
    step: int | None
    start: int
    end: int


@dataclass(frozen=True)
class HostStep:
    number: int
    start: int
    end: int


def host_steps(trace: Trace, step_marker: str | None) -> list[HostStep]:
    """Section 3: "Host step k is the annotation `ProfilerStep#N` with span `[c_k, h_k)`";
    "`--step-marker REGEX` names another".

    Choice: the expression may match anywhere in the name. Choice: steps that start together stand
    as in the trace.
    """
    marker = re.compile(PROFILER_STEP if step_marker is None else step_marker)
    marked = sorted(
        ((e, m) for e in trace.annotations if (m := marker.search(e.name))),
        key=lambda pair: (pair[0].start, pair[0].position),
    )
    return [HostStep(step_number(m, i), e.start, e.end) for i, (e, m) in enumerate(marked)]


def step_number(match: re.Match[str], ordinal: int) -> int:
    """Choice: N is the expression's first group, else the integer at the end of the name, else a
    count from 0.
    """
    if match.re.groups and (match.group(1) or "").isdecimal():
        return int(match.group(1))
    trailing = re.search(r"\d+$", match.string)
    return int(trailing.group()) if trailing else ordinal


def whole_trace(trace: Trace) -> list[Window]:
    """Section 3: "Without any, the whole trace (earliest start to latest end over host operators
    and device activities) is one step with index `null`".
    """
    work = [*trace.operators, *trace.device]
    if not work:
        return []
    return [Window(None, min(e.start for e in work), max(e.end for e in work))]


def host_step_of(instant: int, starts: Sequence[int]) -> int | None:
    """Section 3: "into `[c_k, c_{k+1})`; before c_0: to no step; after c_last: to the last"."""
    index = None
    for k, start in enumerate(starts):
        if start <= instant:
            index = k
    return index


def device_by_step(trace: Trace, starts: Sequence[int]) -> list[list[Event]]:
    """Section 3: "A device activity belongs to step k if its launch (its own start, where no launch
    was recorded) falls into".
    """
    groups: list[list[Event]] = [[] for _ in starts]
    for activity in trace.device:
        k = host_step_of((trace.launch_of(activity) or activity).start, starts)
        if k is not None:
            groups[k].append(activity)
    return groups


def step_windows(trace: Trace, steps: Sequence[HostStep]) -> list[Window]:
    """Section 3: b_k = max(c_k, min(E_{k-1}, s_k), b_{k-1}), without device activity max(c_k, b_{k-1}); E_{-1} is the
    end of what was launched before c_0.

    "end = max(h_last, E_last)"; "Step k is `[b_k, b_{k+1})`".
    """
    groups = device_by_step(trace, [s.start for s in steps])
    main = main_streams(trace)
    firsts = []
    for group in groups:
        own = [e.start for e in group if e.thread in main] or [e.start for e in group]
        firsts.append(min(own, default=None))
    left = [e.end for e in trace.device if (trace.launch_of(e) or e).start < steps[0].start]
    begins: list[int] = []
    for k, first in enumerate(firsts):
        candidates = [steps[k].start, *begins[-1:]]
        earlier = [e.end for group in groups[:k] for e in group] if k else left
        # Choice: where no step before k has any device activity, there is nothing to wait for.
        if first is not None and earlier:
            candidates.append(min(max(earlier), first))
        begins.append(max(candidates))
    end = max([steps[-1].end, *(e.end for group in groups for e in group)])
    ends = [*begins[1:], end]
    return [Window(s.number, b, e) for s, b, e in zip(steps, begins, ends, strict=True)]


def main_streams(trace: Trace) -> set[Thread]:
    """Section 3: "the stream of their device that computes for longest"; choice: of several, the one listed first."""
    spent: dict[Thread, int] = {}
    for event in sorted(trace.device, key=lambda e: e.position):
        spent[event.thread] = spent.get(event.thread, 0)
        spent[event.thread] += event.duration if device_category(event, trace) == "compute" else 0
    longest: dict[object, Thread] = {}
    for thread, ns in spent.items():
        if ns > (spent[longest[thread[0]]] if thread[0] in longest else 0):
            longest[thread[0]] = thread
    return set(longest.values())


def outermost_loads(spans: Sequence[Event]) -> list[Event]:
    """Choice: a data-loading span within another one on its thread is the same load; of two equal
    ones the first counts.
    """
    ordered = sorted(spans, key=lambda e: (e.start, -e.duration, e.position))
    kept: list[Event] = []
    for span in ordered:
        if not any(contains(outer, span) for outer in kept):
            kept.append(span)
    return kept


def loads_by_step(loads: Sequence[Event], starts: Sequence[int], windows: Sequence[Window]) -> list[list[int]]:
    """Section 4: "For data loading also keep each span's duration (per step: count, sum, largest)".

    Choice: a load belongs to the host's step in which it starts; before the first, or when the last
    window has ended, to none. Choice: without steps, to the one step that the whole trace is.
    """
    grouped: list[list[int]] = [[] for _ in windows]
    for span in loads:
        k = host_step_of(span.start, starts) if starts else 0
        if k is not None and windows and (not starts or span.start < windows[-1].end):
            grouped[k].append(span.duration)
    return grouped


# ---- section 4: where a step's time goes ---------------------------------------------------------


@dataclass(frozen=True)
class Activity:
    """Something that runs and may claim the instants it runs at."""

    event: Event
    category: Category
    nested: bool = False
    """A host operator of a CPU-only trace: only the innermost on its thread claims anything."""


def activities(trace: Trace) -> list[Activity]:
    """Section 4, the column "the instant belongs to it if", for traces with device activity and
    CPU-only ones.
    """
    work = device_activities(trace) if trace.device else host_activities(trace)
    return [*work, *(Activity(e, "data_loading") for e in trace.data_loading)]


def by_device(trace: Trace, starts: Sequence[int]) -> list[list[Activity]]:
    """Section 4: "Of a process with several devices" those that compute in the steps; of what runs on others, "the
    first".
    """
    in_steps = [e for step in device_by_step(trace, starts) for e in step] if starts else trace.device
    computing = {e.thread[0] for e in in_steps if device_category(e, trace) == "compute"}
    if len(computing) < 2:
        return [activities(trace)]
    first, *rest = sorted(computing, key=lambda pid: (len(str(pid)), str(pid)))
    others = {e.thread[0] for e in trace.device} - computing
    owned = [{first, *others}, *({pid} for pid in rest)]
    work, loads = device_activities(trace), [Activity(e, "data_loading") for e in trace.data_loading]
    waits = [*waiting(work)]
    return [[*(a for a in work if a.event.thread[0] in pids), *waits, *loads] for pids in owned]


def waiting(work: Sequence[Activity]) -> Iterator[Activity]:
    """Section 4: where one communicates and none computes "all do"."""
    for left, right, running in elementary_intervals(work, ()):
        first = next((a for a in running if a.category == "communication"), None)
        if first and not any(a.category == "compute" for a in running):
            yield replace(first, event=replace(first.event, start=left, end=right, position=-1 - left))


def mean(
    devices: Sequence[tuple[list[dict[Category, int]], list[dict[Category, int]]]],
) -> tuple[list[dict[Category, int]], list[dict[Category, int]]]:
    """Section 4: "the mean over them", rounded so that the categories add up."""
    count, exposed, total = len(devices), [], []
    for several in zip(*(one for one, _ in devices), strict=True):
        upto = [sum(own[c] for own in several for c in ORDER[: k + 1]) // count for k in range(len(ORDER))]
        exposed.append(dict(zip(ORDER, (b - a for a, b in pairwise([0, *upto])), strict=True)))
    for several in zip(*(one for _, one in devices), strict=True):
        total.append({c: math.ceil(Fraction(sum(own[c] for own in several), count)) for c in several[0]})
    return exposed, total


def device_activities(trace: Trace) -> list[Activity]:
    return [Activity(e, device_category(e, trace)) for e in trace.device]


def host_activities(trace: Trace) -> list[Activity]:
    """Section 2: "On a CPU-only trace … the host operators are the work"."""
    whole = [e for e in trace.annotations if COMMUNICATION_ANNOTATION.match(e.name)]
    return [
        *(Activity(e, operator_category(e, trace.data_loading, trace.compiling), nested=True) for e in trace.operators),
        *(Activity(e, "communication", nested=True) for e in blocking_waits(trace.operators, whole)),
        *(Activity(e, "communication") for e in whole),
    ]


def blocking_waits(operators: Sequence[Event], collectives: Sequence[Event]) -> list[Event]:
    """Section 2: "An operator around one that issued a collective waits for it …"; as if it called an operator that
    waits.
    """
    waits = []
    for issue in operators:
        if not COMMUNICATION_OPERATOR.match(issue.name) or not issue.duration:
            continue
        own = [e for e in operators if e.thread == issue.thread]
        before = max((e for e in own if e.start < issue.end <= e.end), key=depth)
        after = max((e for e in own if e.start <= issue.end < e.end), key=depth, default=None)
        if before != issue or after is None or COMMUNICATION_OPERATOR.match(after.name) or after.start > issue.start:
            continue
        goes_on = min(at for e in own for at in (e.start, e.end) if at > issue.end)
        ended = [e for e in collectives if e.end <= goes_on]
        last = max(ended, key=lambda e: (e.end, e.position), default=None)
        if last is None or last.end <= issue.end or last.start < issue.start:
            continue
        if goes_on - last.end <= max(500_000, (last.end - issue.end) // 10):
            waits.append(replace(issue, start=issue.end, end=last.end))
    return waits


def claimed(running: Iterable[Activity]) -> set[Category]:
    """The categories that apply at an instant at which `running` run."""
    categories: set[Category] = set()
    innermost: dict[Thread, Activity] = {}
    for activity in running:
        if not activity.nested:
            categories.add(activity.category)
            continue
        thread = activity.event.thread
        if thread not in innermost or depth(activity.event) > depth(innermost[thread].event):
            innermost[thread] = activity
    return categories | {a.category for a in innermost.values()}


def first_claim(categories: set[Category]) -> Category:
    """Section 4: "Every instant of a step's window goes to the first category that applies"."""
    return next((c for c in ORDER if c in categories), "overhead")


def elementary_intervals(spans: Sequence[Activity], marks: Iterable[int]) -> Iterator[tuple[int, int, list[Activity]]]:
    """Cut time at every start, end and mark; yield (left, right, what runs there) between any two
    neighbours.
    """
    spans = [a for a in spans if a.event.end > a.event.start]
    starting: dict[int, list[Activity]] = defaultdict(list)
    ending: dict[int, list[Activity]] = defaultdict(list)
    for activity in spans:
        starting[activity.event.start].append(activity)
        ending[activity.event.end].append(activity)
    cuts = sorted({*starting, *ending, *marks})
    running: dict[int, Activity] = {}
    for left, right in pairwise(cuts):
        for activity in ending[left]:
            del running[activity.event.position]
        for activity in starting[left]:
            running[activity.event.position] = activity
        yield left, right, list(running.values())


def sweep(
    spans: Sequence[Activity], windows: Sequence[Window]
) -> tuple[list[dict[Category, int]], list[dict[Category, int]]]:
    """Section 4: exposed time by the first category that applies, and "the union of the category's
    spans inside the window".
    """
    exposed: list[dict[Category, int]] = [dict.fromkeys(ORDER, 0) for _ in windows]
    total: list[dict[Category, int]] = [dict.fromkeys(ORDER[:-1], 0) for _ in windows]
    marks = [bound for w in windows for bound in (w.start, w.end)]
    k = 0
    for left, right, running in elementary_intervals(spans, marks):
        while k < len(windows) and windows[k].end <= left:
            k += 1
        if k == len(windows) or left < windows[k].start:
            continue
        categories = claimed(running)
        exposed[k][first_claim(categories)] += right - left
        for category in categories:
            total[k][category] += right - left
    return exposed, total
