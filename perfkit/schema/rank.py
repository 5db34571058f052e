"""What one rank's trace says."""

from typing import Literal

from msgspec import Struct

from perfkit.schema.common import Category


class ExposedNs(Struct, frozen=True, kw_only=True, gc=False):
    """Exclusive time by category; sums to the window exactly (metrics.md section 4)."""

    compute: int
    communication: int
    memcpy: int
    data_loading: int
    overhead: int


class TotalNs(Struct, frozen=True, kw_only=True, gc=False):
    """Time in which a category was active at all, whatever else ran; `total - exposed` was hidden."""

    compute: int
    communication: int
    memcpy: int
    data_loading: int


class Loads(Struct, frozen=True, kw_only=True):
    """The data-loading spans that began in a step on the host (outermost spans only)."""

    count: int
    sum_ns: int
    max_ns: int
    spans_ns: list[int]
    """Duration of each, in order."""


class StepBreakdown(Struct, frozen=True, kw_only=True):
    """One step of one rank."""

    step: int | None
    """N of `ProfilerStep#N`; None where the trace has no steps and the whole of it is taken as one."""
    start_ns: int
    """Absolute start of the step's window, in the trace's own clock."""
    wall_ns: int
    exposed_ns: ExposedNs
    total_ns: TotalNs
    loads: Loads


class OperatorStat(Struct, frozen=True, kw_only=True, gc=False):
    """A kernel or host operator, summed over a rank's steps."""

    name: str
    category: Category
    count: int
    total_ns: int
    """Kernels: summed durations. Host operators: summed *self* time (innermost)."""
    max_ns: int


class PhaseStat(Struct, frozen=True, kw_only=True, gc=False):
    """Spans that the program itself named (`user_annotation`), by name, summed over a rank's steps: the host's time."""

    name: str
    count: int
    total_ns: int
    """Summed durations; a phase inside another counts in both."""
    max_ns: int


class CollectiveStat(Struct, frozen=True, kw_only=True, gc=False):
    """Collectives of one kind, group, size and type, summed over a rank's steps."""

    operator: str
    """all_reduce, all_gather, …; "unknown" where the trace does not say."""
    group: str | None
    group_size: int | None
    bytes: int | None
    """Message size S as metrics.md section 5 has it; None where the trace does not say."""
    dtype: str | None
    count: int
    total_ns: int
    """Summed durations."""
    exposed_ns: int
    """The part of them that nothing hid."""
    max_ns: int
    ddp_bucket: bool = False
    """Whether DDP's reducer issued them: all-reduces of buckets of gradients."""


class MemoryPeak(Struct, frozen=True, kw_only=True, gc=False):
    """The most that was allocated on a device at once in one step of a rank.

    The step lasts from where the host begins it to where it begins the next, and begins with what was left allocated.
    """

    step: int | None
    allocated_bytes: int
    reserved_bytes: int | None
    """The most that the allocator held of the device in that step, whether given out or not; None where it does not
    say."""
    at_ns: int
    """When the peak was reached, since the host began the step."""


class MemoryCurve(Struct, frozen=True, kw_only=True):
    """What was allocated over one step: each level lasts until the next. Thinned out to at most 194, extremes kept."""

    step: int | None
    at_ns: list[int]
    """Since the host began the step; the last is its end."""
    allocated_bytes: list[int]


class MemoryUse(Struct, frozen=True, kw_only=True):
    """What torch had allocated on one device of a rank in the recorded steps.

    On the CPU that is only what was allocated since the profiler started.
    """

    device: str
    """`CPU`, or `device N`."""
    limit_bytes: int | None
    """The device's memory; None where the trace does not say."""
    steps: list[MemoryPeak]
    """Peak of each step; none of those before anything was allocated or released."""
    peak: MemoryPeak
    """The highest of them, the first of equals."""
    phase: str | None
    """The innermost annotation of the program's that ran on the host when it was reached."""
    category: Category
    """What the step's time went to at that instant."""
    curve: MemoryCurve
    """Of the step with the peak."""


class RankReport(Struct, frozen=True, kw_only=True):
    """Everything about one rank."""

    rank: int | None
    traces: list[str]
    """Files, relative to the run."""
    host: str | None
    device: Literal["gpu", "cpu"]
    """`cpu` where the trace has no device activity: the host operators are the work."""
    backend: str | None
    steps: list[StepBreakdown]
    operators: list[OperatorStat]
    """By time, largest first."""
    collectives: list[CollectiveStat]
    events: dict[str, int]
    """Events read, by kind; `unknown` counts those that no rule knows."""
    phases: list[PhaseStat] = []
    """By time, largest first; at most 100 names, without steps and collectives."""
    memory: list[MemoryUse] = []
    """The CPU first; empty where it was not recorded (`profile_memory`)."""
