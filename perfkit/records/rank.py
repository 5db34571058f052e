"""Records of one rank, from its traces."""

from typing import Any, Final, Literal

from msgspec import Struct

from perfkit.records.common import Category
from perfkit.records.per_rank.idle import IdleNs, IdleTime, LaunchStats
from perfkit.records.per_rank.loading import RankLoading
from perfkit.records.per_rank.memory import MemoryBlock, MemoryBytes, MemoryCategory, MemoryHolder
from perfkit.records.per_rank.operator_work import RankWork
from perfkit.records.per_rank.sharding import IssuedCollectives, ShardedParameters
from perfkit.records.per_rank.work import Work
from perfkit.records.samples import CodeTime


class ExposedNs(Struct, frozen=True, kw_only=True, gc=False):
    """Exclusive time by category; sums exactly to the step's window (metrics.md section 4)."""

    compute: int
    communication: int
    memcpy: int
    data_loading: int
    overhead: int


class TotalNs(Struct, frozen=True, kw_only=True, gc=False):
    """Time in which a category was active, whatever else ran; `total - exposed` was overlapped."""

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
    """N of `ProfilerStep#N`, and 10**12 for each time that numbers had started again before it (metrics.md section 3);
    None if the trace has no steps and counts as one."""
    start_ns: int
    """Absolute start of the step's window, by the trace's own clock."""
    wall_ns: int
    """Its window without pauses."""
    exposed_ns: ExposedNs
    total_ns: TotalNs
    loads: Loads
    idle_ns: IdleNs
    """`exposed_ns.overhead` by cause."""
    paused_ns: int = 0
    """Checkpoints, evaluations and logging in its window, which are no part of the step (metrics.md section 23)."""


OTHER_NAMES: Final = "(other names)"
"""Name of the row that adds up the operators of a category that are not listed."""


class DeviceTimes(Struct, frozen=True, kw_only=True, gc=False):
    """One of several devices of a rank, over its steps."""

    device: str
    """Its number."""
    exposed_ns: ExposedNs
    """Its own time by category: the rank's is the mean over its devices."""
    beside_ns: int
    """The part of `exposed_ns.overhead` in which another device of the rank works."""


class OperatorStat(Struct, frozen=True, kw_only=True, gc=False):
    """A kernel or host operator, summed over a rank's steps."""

    name: str
    category: Category
    count: int
    total_ns: int
    """Kernels: summed durations. Host operators: summed *self* time (innermost)."""
    size: int | None = None
    """How much they work on, summed: blocks of kernels, elements of the inputs of host operators (`record_shapes`).
    None if that was not recorded for each."""
    max_ns: int
    max_step: int | None = None
    """Step of the longest one."""
    max_at_ns: int | None = None
    """Its start, since that of the step's window; None if unknown."""


class PhaseStat(Struct, frozen=True, kw_only=True, gc=False):
    """Host spans annotated by the program (`user_annotation`), by name, summed over a rank's steps."""

    name: str
    count: int
    total_ns: int
    """Summed durations; nested phases count in both."""
    max_ns: int
    exposed_ns: ExposedNs | None = None
    """Their time by category; None on ranks with a device, which works on while the host goes through its phases."""


UNKNOWN_OPERATOR: Final = "unknown"
"""The operator of collectives of which only kernels are known, whose names do not tell it."""
ONE_TO_N: Final = frozenset({"broadcast", "reduce", "scatter", "gather"})
"""Operators in which not all ranks wait for all others: nothing in a trace tells their waiting from their transfer."""


class CollectiveStat(Struct, frozen=True, kw_only=True, gc=False):
    """Collectives of one kind, group, size and type, summed over a rank's steps."""

    operator: str
    """all_reduce, all_gather, …; "unknown" if the trace does not contain it."""
    group: str | None
    group_size: int | None
    bytes: int | None
    """Message size S (metrics.md section 5); None if the trace does not contain it."""
    dtype: str | None
    count: int
    total_ns: int
    """Summed durations."""
    exposed_ns: int
    """The part of it that was not overlapped."""
    max_ns: int
    ddp_bucket: bool = False
    """Whether DDP's reducer issued them: all-reduces of buckets of gradients."""
    dimension: str | None = None
    """Dimension of parallelism that they serve: dp, shard, tp, pp …, several joined by `+`; None if unknown."""
    max_step: int | None = None
    """Step of the longest one."""
    max_at_ns: int | None = None
    """Its start, since that of the step's window; None if unknown."""


class MemoryPeak(Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Peak of the memory allocated on a device in one step of a rank.

    The step lasts from its start on the host to the start of the next, and includes what was allocated before it.
    JSON leaves out defaults.
    """

    step: int | None
    allocated_bytes: int
    reserved_bytes: int | None
    """Peak of the memory that the allocator reserved on the device in that step; None if unknown."""
    at_ns: int
    """Time of the peak, since the host began the step."""
    unknown_bytes: int | None = None
    """Part of `allocated_bytes` that no recorded allocation explains: mostly memory that a thread without the profiler
    released, such as one of gloo's, which torch then counts for ever. None if the addresses of allocations were not
    recorded."""
    unseen_release_bytes: int = 0
    """Further part of `allocated_bytes`: allocations whose release is not in the trace, and whose address was allocated
    again after the peak. When they were released is unknown: perhaps before the peak."""


class MemoryCurve(Struct, frozen=True, kw_only=True):
    """Allocated memory over one step, as a step function thinned out to at most 194 levels with its extremes kept."""

    step: int | None
    at_ns: list[int]
    """Time since the host began the step; the last is its end."""
    allocated_bytes: list[int]
    categories: dict[MemoryCategory, list[int]] = {}
    """`allocated_bytes` by category, to which these add up; without those that are always zero. Empty if the addresses
    of allocations were not recorded."""


class MemoryUse(Struct, frozen=True, kw_only=True):
    """Memory that torch had allocated on one device of a rank in the recorded steps.

    On the CPU this covers only allocations since the profiler started.
    """

    device: str
    """`CPU`, or `device N`."""
    limit_bytes: int | None
    """Memory of the device; None if the trace does not contain it."""
    steps: list[MemoryPeak]
    """Peak of each step; steps before the first allocation or release have none."""
    peak: MemoryPeak
    """The highest of these, the first of equals."""
    phase: str | None
    """Innermost annotation on the host when the peak was reached."""
    category: Category
    """Category of the step's time at that instant."""
    curve: MemoryCurve
    """Curve of the step with the peak."""
    at_peak: MemoryBytes | None = None
    """What was allocated at the peak, by category; adds up to `peak.allocated_bytes`. None if the addresses of
    allocations were not recorded."""
    largest: MemoryBytes | None = None
    """The most that each category had in the step with the peak; None as for `at_peak`."""
    holders: list[MemoryHolder] = []
    """The same by who allocated it; by bytes, largest first; at most 100 rows, and one per category for all others.
    Without what was allocated before the recording, and what is unknown."""
    blocks: list[MemoryBlock] = []
    """The largest allocations at the peak, one by one, largest first; at most 20 rows. Without what was allocated
    before the recording."""
    tensors_noted: bool = False
    """Whether the run noted where its parameters, gradients and optimizer state are: otherwise the last two are
    inferred, and parameters are not known."""
    not_counted: MemoryBytes | None = None
    """Allocated before the recording and known from the run itself, but not part of the total: torch counts the CPU's
    memory from the start of the recording. None if nothing is known."""


class RankReport(Struct, frozen=True, kw_only=True):
    """Everything about one rank."""

    rank: int | None
    traces: list[str]
    """File names, relative to the run."""
    host: str | None
    device: Literal["gpu", "cpu"]
    """`cpu` if the trace has no device activity: then host operators are the work."""
    backend: str | None
    steps: list[StepBreakdown]
    operators: list[OperatorStat]
    """By time, largest first."""
    collectives: list[CollectiveStat]
    events: dict[str, int]
    """Number of events by kind; `unknown` counts those that no rule matches."""
    phases: list[PhaseStat] = []
    """By time, largest first; at most 100 names, without step and collective annotations."""
    memory: list[MemoryUse] = []
    """The CPU first; empty if memory was not recorded (`profile_memory`)."""
    issued_collectives: list[IssuedCollectives] = []
    """The same collectives by where in the step they were issued; by exposed time, largest first."""
    sharded_parameters: ShardedParameters | None = None
    """None without all-gathers of sharded parameters."""
    recorded: list[str]
    """Options of torch.profiler that were on for all of the rank's traces, of `with_stack`, `record_shapes` and
    `profile_memory`."""
    light: bool = False
    """Whether one of its traces has no operators (`--trace-ranks`): causes of its idle time are unknown."""
    idle: IdleTime
    """Why the rank was idle."""
    devices: list[DeviceTimes] = []
    """Its devices, where several compute; else empty."""
    launches: LaunchStats | None = None
    """How far the host launched ahead of the device; None if no launches were recorded."""
    operator_work: RankWork | None = None
    """What its operators needed; None if no shapes were recorded (`record_shapes`)."""
    work: Work | None = None
    """Time by module, Python function, operator and phase; None if some of its traces have device activity and others
    have none."""
    loading: RankLoading | None = None
    """How its batches were fetched; None if the traces do not contain it."""
    code: list[CodeTime] = []
    """Functions of the program by what the time of steps was in, largest first; empty if nothing was sampled."""
    subjects: dict[str, list[Any]] = {}
    """Records of subjects without a field here, such as those that packages add, one per trace, by name."""

    def __repr__(self) -> str:
        """Return what identifies it: all of it would be tens of thousands of characters."""
        return f"RankReport(rank={self.rank}, host={self.host!r}, device={self.device!r}, steps={len(self.steps)}, ...)"
