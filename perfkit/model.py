"""The records that flow through perfkit: the manifest a run writes and the report an analysis returns.

All are frozen and keyword-only. msgspec encodes and decodes them, checks them, and writes their JSON Schema, so what
stands here is the file format: a change to `RunManifest` bumps `MANIFEST_VERSION`, one to `Report` `REPORT_VERSION`,
one to `Comparison` `COMPARISON_VERSION`, one to `Sweep` `SWEEP_VERSION`, one to `History` `HISTORY_VERSION`, and all go
into CHANGELOG.md. Units are in the names; `None` means "not known", and a field beside it or a finding says why.
"""

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

from msgspec import Meta, Struct

from perfkit.phases import Phase

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure

    from perfkit.frames import Frames

MANIFEST_VERSION: Final = 1
REPORT_VERSION: Final = 1
COMPARISON_VERSION: Final = 1
SWEEP_VERSION: Final = 1
HISTORY_VERSION: Final = 1
PEER_VERSION: Final = 1

Category = Literal["compute", "communication", "memcpy", "data_loading", "overhead"]
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)
"""In the order in which they claim an instant (METRICS section 4)."""

Severity = Literal["info", "warning", "error"]
Nanoseconds = Annotated[int, Meta(description="nanoseconds")]


# ---- run.json: what a run says of itself ---------------------------------------------------------------------------


class Injection(Struct, frozen=True, kw_only=True):
    """A delay put into one phase of every step on purpose, to teach and to test with."""

    phase: Phase
    delay_ns: Annotated[int, Meta(gt=0)]
    rank: Annotated[int, Meta(ge=0)] | None = None
    """The rank that is delayed; every rank if None."""


StepKind = Literal["cold", "plain", "warmup", "active"]
"""`cold`: the first step (allocations, DDP's first buckets) or one that follows the writing of a trace; `plain`:
timed without the profiler; `warmup`: profiler on, nothing kept; `active`: recorded."""


class RankRecord(Struct, frozen=True, kw_only=True):
    """One rank's own record: where it ran and how long each of its steps took by its own clock."""

    rank: int
    local_rank: int
    node_rank: int
    host: str
    device: str
    device_name: str
    threads: int
    """CPU threads of torch's intra-op pool."""
    node_cores: int | None = None
    """Cores that all ranks of its host may run on, together; None where that is not known."""
    step_wall_ns: list[int]
    """Duration of each completed step, from asking for the batch to the end of the optimizer: on a CPU the host's wall
    time, on an accelerator the time between two events in its own queue."""
    load_ns: list[int]
    """Host time spent waiting for each step's batch."""
    loss: list[float | None]
    """Loss of each completed step; None where it was not finite, or not to be had from a device after a failure."""


class World(Struct, frozen=True, kw_only=True):
    """How the ranks were laid out."""

    world_size: int
    nodes: int
    launcher: str
    local_world_sizes: list[int]
    """Ranks a node, by node rank."""


FileKind = Literal["trace", "key_averages", "python_profile", "memory_snapshot", "nccl_log"]
FILE_KINDS: Final[tuple[FileKind, ...]] = get_args(FileKind)


class TraceFile(Struct, frozen=True, kw_only=True):
    """A file that the run wrote and checked; `path` is relative to the run folder."""

    path: str
    rank: int
    cycle: int
    bytes: int
    kind: FileKind


class Throughput(Struct, frozen=True, kw_only=True):
    """Rates over the warm steps that were not recorded, else over the recorded ones (`measured_on` says which)."""

    samples_per_s: float
    tokens_per_s: float | None
    flops_per_s: float | None
    """Model FLOP/s of the whole run (METRICS section 8)."""
    mfu: float | None
    mfu_reason: str | None
    """Why there is no MFU."""
    read_bytes_per_s: float | None
    """Bytes of samples delivered per second of waiting for them, summed over ranks. None where the waiting is not the
    reading: with loader workers, which read ahead, and with an injected delay of the loading."""
    measured_on: Literal["plain", "active"]
    step_ns: int
    """Median over those steps of the largest wall time over ranks."""


class Failure(Struct, frozen=True, kw_only=True):
    """The first failure of a run."""

    rank: int
    message: str


class Compiled(Struct, frozen=True, kw_only=True):
    """What `torch.compile` made of the model."""

    graphs: int
    """Compiled graphs of the rank with the fewest; with 0 the model ran as if it had not been asked to compile."""
    steps: list[int]
    """Steps in which something was compiled, on any rank."""


class FileSpeed(Struct, frozen=True, kw_only=True):
    """How fast the file of the samples can be read: large blocks one after the other by one process, rank 0's.

    Measured right after the last step, from the file's beginning, as the run has left it in the page cache.
    """

    bytes_per_s: float
    read_bytes: int
    """What was read for it."""
    wall_ns: int
    """How long that took; of a short file that lies in the page cache, the median of several times."""
    cached_share: float | None
    """Share of it that was in the page cache before; None where the system does not say."""


class RunManifest(Struct, frozen=True, kw_only=True):
    """`run.json`."""

    schema_version: int = MANIFEST_VERSION
    run: str
    state: Literal["running", "completed", "failed"]
    failure: Failure | None = None
    workload: str
    source: str
    """Input source: memory, hdf5, safetensors, or what the user's own loop calls it."""
    started_at: str
    """ISO 8601, UTC."""
    finished_at: str | None = None
    config: dict[str, Any]
    """The effective configuration, every option by its name."""
    versions: dict[str, str]
    commit: str | None = None
    """The git commit that the working directory was at; what was not committed there is not known."""
    backend: str | None
    device: str
    world: World
    parameters: int | None = None
    parameter_checksum: str | None = None
    """SHA-256 over the parameters after the last step, the same on all ranks (checked)."""
    compiled: Compiled | None = None
    """None where compiling was not asked for."""
    batch_size: int | None = None
    """Samples a rank and step: those of all its micro-steps."""
    sample_bytes: int | None = None
    tokens_per_sample: int | None = None
    flops_per_token: float | None = None
    injections: list[Injection] = []
    step_kinds: list[StepKind] = []
    """One a step, the same on all ranks; of a failed run as far as `ranks` go."""
    ranks: list[RankRecord] = []
    throughput: Throughput | None = None
    file_speed: FileSpeed | None = None
    """None where the samples come from no file of perfkit's, or it could not be read (then `unknown` says why)."""
    unknown: dict[str, str] = {}
    """Fields here and in `ranks` that cannot be known of this run, and why: they are None, or an empty list."""
    files: list[TraceFile] = []


# ---- sweep.json: what a set of runs says of itself -----------------------------------------------------------------

ScalingKind = Literal["strong", "weak"]
"""What stays as ranks are added: the batch of all ranks together, or that of one rank."""

PointState = Literal["planned", "completed", "failed"]


class SweepPoint(Struct, frozen=True, kw_only=True):
    """One run of a sweep, whether it has been run or not."""

    run: str
    """Name of its run folder, beside `sweep.json`; a run that fails early leaves none."""
    key: str
    """Hexadecimal; the same for the repeats of one workload, number of ranks and configuration, and for no other."""
    ranks: int
    repeat: int
    scaling: list[ScalingKind]
    """What it is a point of; the smallest number of ranks can be of both."""
    arguments: list[str]
    """What follows `perfkit run`."""
    state: PointState = "planned"
    reason: str | None = None
    """Why it failed, in one line."""
    wall_ns: int | None = None
    """How long its processes took, start-up included; None where `perfkit sweep` itself did not run it to its end."""


class Sweep(Struct, frozen=True, kw_only=True):
    """`sweep.json`: every point that a call of `perfkit sweep` on this folder has asked for."""

    schema_version: int = SWEEP_VERSION
    points: list[SweepPoint]


# ---- report.json: what the analysis says ---------------------------------------------------------------------------


class ExposedNs(Struct, frozen=True, kw_only=True, gc=False):
    """Exclusive time by category; sums to the window exactly (METRICS section 4)."""

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
    """Message size S as METRICS section 5 has it; None where the trace does not say."""
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


class Finding(Struct, frozen=True, kw_only=True):
    """Something about the data that a reader must know before trusting the numbers."""

    code: str
    severity: Severity
    message: str
    rank: int | None = None
    file: str | None = None


class DataLoading(Struct, frozen=True, kw_only=True):
    """Loads of a run, over all its ranks and recorded steps."""

    source: str | None
    count: int
    median_ns: int
    max_ns: int
    max_rank: int | None
    max_step: int | None
    exposed_share: float
    """Exposed data loading / wall, over ranks and steps."""
    read_bytes_per_s: float | None
    """Bytes of samples delivered per second of waiting for them, summed over ranks; None without a manifest, and where
    the run's own rate is None (see `Throughput`)."""
    file_speed: FileSpeed | None = None
    """The manifest's."""
    file_share: float | None = None
    """What a rank reads a second, in the mean, against the file's own speed. Above one where the file holds the samples
    compressed, or lies in a faster cache while it is loaded than after."""


class ProfilerCost(Struct, frozen=True, kw_only=True):
    """What profiling cost, from the run's own clock (largest wall over ranks, medians over steps)."""

    plain_step_ns: int | None
    recorded_step_ns: int | None
    ratio: float | None
    reason: str | None
    """Why there is no ratio."""


Bound = Literal["compute", "communication", "input", "memcpy", "host", "imbalance", "unknown"]


class Verdict(Struct, frozen=True, kw_only=True):
    """One sentence on what limits the run."""

    bound: Bound
    share: float
    """Share of the step that the limiting category takes exclusively, 0 to 1."""
    sentence: str


class Efficiency(Struct, frozen=True, kw_only=True):
    """What became of a run's time, as factors that multiply (METRICS section 6); each in (0, 1], or None."""

    parallel: float | None
    """Mean compute / wall: the product of the five below."""
    load_balance: float | None
    """Lost because ranks compute unequally."""
    host: float | None
    """Lost to copies, launch gaps, Python and synchronisation."""
    input: float | None
    """Lost to waiting for data."""
    serialisation: float | None
    """Lost to waiting for other ranks, though none computes more over all."""
    transfer: float | None
    """Lost to the collectives themselves."""
    au: float | None
    """Accelerator utilisation: compute / wall without the first measured step; None where there is no other."""
    t_ns: int
    """The largest wall over ranks, summed over steps."""
    t_ideal_ns: int
    """The run with every transfer at zero, by replay; not above `t_ns`."""
    replayed_ns: int
    """The same before it is held between its bounds."""
    mean_compute_ns: float
    max_compute_ns: int
    sum_compute_ns: int
    wait_ns: int
    """Exposed communication that was waiting for other ranks, summed over ranks."""
    transfer_ns: int
    """The rest of exposed communication."""
    unmatched_ns: int
    """The part of it that no match was found for, or that is not n-to-n: it counts as transfer."""
    reason: str | None
    """Why there are no factors."""


class SharedCollective(Struct, frozen=True, kw_only=True):
    """Matched collectives of one operator, group and size, over all ranks."""

    operator: str
    group: str | None
    group_size: int | None
    bytes: int | None
    dtype: str | None
    count: int
    """Collectives, each on several ranks."""
    wait_ns: float | None
    """Mean waiting of a rank in one; None where it is not n-to-n."""
    transfer_ns: float | None
    """Median over the collectives of the shortest duration over ranks."""
    algbw: float | None
    """Bytes a second, size / transfer, as nccl-tests has it; None where the size is not known."""
    busbw: float | None
    """`algbw` times the factor of the operator and the group's size."""
    ddp_bucket: bool = False
    """Whether DDP's reducer issued them: all-reduces of buckets of gradients."""


class RankWait(Struct, frozen=True, kw_only=True):
    """How long a rank waited for others in matched collectives; the one that others wait for waits least."""

    rank: int
    wait_ns: int
    """Exposed or hidden, over the measured steps."""
    exposed_wait_ns: int
    transfer_ns: int = 0
    """The rest of its time in collectives, matched or not."""


class HostClock(Struct, frozen=True, kw_only=True):
    """A host's clock as against the reference's, by the ends of collectives that ranks of both took part in.

    An instant `t_ns` of this clock is `t_ns + offset_ns + drift * (t_ns - at_ns)` by the reference's.
    """

    host: str | None
    """None where the traces do not say: then the clock is one rank's."""
    ranks: list[int]
    offset_ns: int | None = None
    """None where no collective leads to the reference's host."""
    at_ns: int = 0
    """Where on this clock the offset holds, if it drifts."""
    drift: float = 0.0
    """Nanoseconds a nanosecond; 0 where none stands out from the residual."""
    residual_ns: int | None = None
    """Median absolute deviation of the ends after alignment; of the reference's host that of its own ranks' ends."""
    collectives: int = 0
    """Pairs of ends that it comes from."""


Evidence = Literal["waiting", "own_time"]


class Straggler(Struct, frozen=True, kw_only=True):
    """The rank that the others wait for, step after step."""

    rank: int
    evidence: Evidence
    """`waiting`: it waits least in matched collectives. `own_time`: without enough of those, the rank whose steps are
    longest without exposed communication."""
    lag_ns: int
    """A step, in the median: by how much it waits less than the other ranks (by how much longer it takes by itself)."""
    noise_ns: int
    """By how much that varies from step to step (median absolute deviation)."""
    share: float
    """Of the median step."""
    category: Category | None
    """Where its steps take more than the other ranks'; None where no part of them does."""
    category_ns: int
    """How much more, a step in the median."""
    wait_ns: int
    """How much more exposed communication the others have, a step in the median."""
    last: int
    """Steps in which it was the last ..."""
    steps: int
    """... of so many that all ranks recorded."""

    @property
    def awaited(self) -> bool:
        """Whether the others' exposed communication shows that waiting for the rank costs them time."""
        return 2 * self.wait_ns >= self.lag_ns


class LateStep(Struct, frozen=True, kw_only=True):
    """A step in which one rank kept the others waiting, though it does not do so in general."""

    rank: int
    step: int
    lag_ns: int
    """By how much it waited less than the other ranks in that step."""
    category: Category | None
    category_ns: int


class BandwidthFit(Struct, frozen=True, kw_only=True):
    """Latency and bandwidth of one operator in one group: t = alpha + factor * S / beta (METRICS section 5)."""

    operator: str
    group: str | None
    group_size: int | None
    sizes: int
    """Distinct message sizes."""
    alpha_ns: float | None
    beta: float | None
    """Bytes a second, to be compared with busbw; None where the time does not grow with the size."""
    error: float | None
    """Root mean square of the relative error over the sizes."""
    reason: str | None
    """Why there is no fit."""


class Across(Struct, frozen=True, kw_only=True):
    """What comparing ranks tells of their collectives (METRICS section 5)."""

    collectives: list[SharedCollective]
    """By the time of all ranks in them, largest first."""
    waits: list[RankWait]
    matched: int
    """Collectives of ranks that were matched with another rank's."""
    unmatched: int
    straggler: Straggler | None = None
    """None where no rank stands out."""
    late: list[LateStep] = []
    """Steps in which a rank was late for once, the longest first."""
    clocks: list[HostClock] = []
    """The reference's host first."""
    fits: list[BandwidthFit] = []


class StepTimes(Struct, frozen=True, kw_only=True):
    """How long each step took by the run's own clock: the largest wall time over ranks (METRICS section 7)."""

    plain_ns: list[int]
    """Warm steps without the profiler."""
    recorded_ns: list[int]
    """Recorded steps."""


class HostUse(Struct, frozen=True, kw_only=True):
    """What a run's ranks use of one host."""

    host: str
    device: str
    """Kind of device its ranks compute on: cpu, cuda, xpu."""
    device_name: str
    ranks: int
    threads: int
    """CPU threads of all its ranks."""
    cores: int | None
    """Cores that they may run on, together; None where that is not known."""


class _Shown:
    """Shows itself in Jupyter. What that needs is imported when it does: the records know nothing of it."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        from perfkit.report.notebook import html

        return html(self)  # type: ignore[arg-type]

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002  IPython's protocol
        from perfkit.report.notebook import text

        printer.text(text(self))  # type: ignore[arg-type]


class _Plotted(_Shown):
    """Has figures of where the time of its steps goes; plotly is imported when one is made.

    All raise UsageError where there is no such figure: for too few ranks or steps, or a report of several runs.
    """

    __slots__ = ()

    def plot_steps(self) -> "Figure":
        """Return a bar a step, mean over ranks, parted by category."""
        return self._plot("steps")

    def plot_ranks(self) -> "Figure":
        """Return a bar a rank, mean over steps, parted by category."""
        return self._plot("ranks")

    def plot_heat_map(self) -> "Figure":
        """Return every step of every rank, as long as it took, or as one category of it did."""
        return self._plot("heat_map")

    def plot_waiting(self) -> "Figure":
        """Return a bar a rank: waiting and transfer in its collectives, a mean step."""
        return self._plot("waiting")

    def plot_bandwidth(self) -> "Figure":
        """Return the bandwidth of matched collectives against their size, with what was fitted."""
        return self._plot("bandwidth")

    def plot_memory(self) -> "Figure":
        """Return what was allocated over the step with the highest peak, a line a rank and device."""
        return self._plot("memory")

    def _plot(self, name: Literal["steps", "ranks", "heat_map", "waiting", "bandwidth", "memory"]) -> "Figure":
        from perfkit.report.plots import plot

        return plot(self, name)  # type: ignore[arg-type]


class CrossCheckRow(Struct, frozen=True, kw_only=True):
    """A rank's time as perfkit has it, and as another program does; summed over its steps."""

    rank: int
    window_ns: int
    """All steps, from the host's start of the first to the end of the last on host and device."""
    compute_ns: int
    other_ns: int
    """Exposed communication and copies."""
    idle_ns: int
    """Overhead and exposed data loading: the device does nothing."""
    peer_window_ns: int
    """From the start of the first device event to the end of the last."""
    peer_compute_ns: int
    peer_other_ns: int
    peer_idle_ns: int
    rounding_ns: int
    """By so much the other's rounding can change a sum at most."""


class CrossCheck(Struct, frozen=True, kw_only=True):
    """`perfkit analyze --cross-check hta`."""

    tool: str
    rows: list[CrossCheckRow]


class RunReport(_Plotted, Struct, frozen=True, kw_only=True):
    """Everything about one run."""

    run: str
    path: str
    workload: str | None
    source: str | None
    world_size: int
    """From the manifest or the headers, else as many as the highest rank needs."""
    state: str | None
    """The manifest's; None for a foreign trace."""
    verdict: Verdict
    ranks: list[RankReport]
    data_loading: DataLoading | None
    profiler_cost: ProfilerCost | None
    throughput: Throughput | None
    config: dict[str, Any] | None
    """The manifest's; None for a foreign trace."""
    started_at: str | None = None
    """The manifest's, as are the three below."""
    commit: str | None = None
    versions: dict[str, str] = {}
    device_names: list[str] = []
    """Each once, in order."""
    injections: list[Injection]
    efficiency: Efficiency | None
    """None without steps of known ranks."""
    across: Across | None
    """None for a single rank."""
    cross_check: CrossCheck | None = None
    """None where it was not asked for, or where the other program could not."""
    findings: list[Finding]
    batch_size: int | None = None
    """Samples a rank and step; None where the run does not say."""
    hosts: list[HostUse] = []
    """Empty without a manifest, or where the run did not come so far."""
    step_times: StepTimes | None = None
    """None without a manifest, or where the run did not come so far."""


# ---- several runs --------------------------------------------------------------------------------------------------


class Estimate(Struct, frozen=True, kw_only=True, gc=False):
    """A figure with its 95 % interval."""

    value: float
    interval: tuple[float, float] | None
    """None where there is too little to tell it from."""


Resampling = Literal["runs", "steps"]
"""What a bootstrap interval was drawn from. Steps of one run share whatever disturbed that run."""


class StepFigure(Struct, frozen=True, kw_only=True):
    """The step time of runs of one configuration (METRICS section 7)."""

    runs: list[str]
    """Repeats."""
    measured_on: Literal["plain", "recorded"]
    """Steps without the profiler, or recorded ones."""
    resampled: Resampling | None
    step_ns: Estimate
    """Median over runs of the median over steps of the largest wall time over ranks."""
    samples_per_s: Estimate | None
    tokens_per_s: float | None


class Factors(Struct, frozen=True, kw_only=True):
    """Global efficiency of a point and what it is the product of (METRICS section 6); means over its runs."""

    global_efficiency: float
    load_balance: float
    host: float
    input: float
    serialisation: float
    transfer: float
    computation_scaling: float
    """Summed computation of a step at the reference / here (weak scaling: times the ratio of world sizes)."""


class ScalingPoint(Struct, frozen=True, kw_only=True):
    """One world size of a series."""

    world_size: int
    nodes: int
    batch_size: int
    """Samples a rank and step."""
    threads: int | None
    """CPU threads a rank; None where they are not known or differ."""
    oversubscribed: str | None
    """What is shared by more than there is of it, such as "4 ranks on 2 cores"."""
    figure: StepFigure
    speedup: Estimate
    """Strong: of the step; weak: of the throughput. Against the smallest world size."""
    efficiency: Estimate
    karp_flatt: Estimate | None
    """Experimentally determined serial fraction (Karp and Flatt 1990); None at the reference and for weak scaling."""
    factors: Factors | None
    factors_reason: str | None
    """Why there are no factors."""
    computation_ns: Estimate | None
    """Computation of all ranks in a step, geometric mean over runs; the interval is of the median."""


class LostEfficiency(Struct, frozen=True, kw_only=True):
    """Where global efficiency went between neighbouring world sizes, in points; negative: gained.

    Logarithmic shares: the parts add up to `total`.
    """

    from_size: int
    to_size: int
    total: float
    load_balance: float
    host: float
    input: float
    serialisation: float
    transfer: float
    computation_scaling: float


FitModel = Literal["amdahl", "gustafson", "usl"]


class Fit(Struct, frozen=True, kw_only=True):
    """A law of scaling, fitted to every run of a series by least squares of relative error."""

    model: FitModel
    parameters: dict[str, Estimate]
    """amdahl, gustafson: `serial_fraction`; usl: `g` (samples/s of one rank), `s` (contention), `k` (coherence)."""
    residual: float | None
    """Root mean square of the relative errors of the runs."""
    peak: float | None
    """World size beyond which throughput falls, for usl; None where it does not, or for the others."""
    reason: str | None
    """Why there is no fit, or why it has no intervals."""


class Forecast(Struct, frozen=True, kw_only=True):
    """What the universal scalability law says of a world size that was not measured."""

    world_size: int
    samples_per_s: Estimate | None
    efficiency: Estimate | None
    reason: str | None
    """Why there is no forecast."""
    all_reduce_ns: float | None = None
    """What a step's all-reduces would take there at least, by the latency and bandwidth of those at the largest world
    size that was measured; hidden or not. None where no latency and bandwidth could be fitted."""


class FailedPoint(Struct, frozen=True, kw_only=True):
    """A run that belongs to a series but has no figure."""

    run: str
    world_size: int
    reason: str


class ScalingSeries(Struct, frozen=True, kw_only=True):
    """Runs that differ in nothing but the number of ranks and, for strong scaling, the batch of each."""

    name: str
    """Workload, and in what it differs from the other series."""
    kind: ScalingKind
    """Strong: the same global batch; weak: the same batch a rank."""
    workload: str
    varies: dict[str, str]
    """The options in which series differ, with this one's values."""
    batch_size: int
    """Strong: of all ranks; weak: of each."""
    points: list[ScalingPoint]
    """By world size; the first is the reference."""
    lost: list[LostEfficiency]
    fits: list[Fit]
    forecasts: list[Forecast]
    failed: list[FailedPoint]
    notes: list[str]
    """What must be known before the figures are believed."""


class AxisRow(Struct, frozen=True, kw_only=True):
    """The runs with one value of an option."""

    value: str
    figure: StepFigure
    efficiency: float | None
    """Parallel efficiency, geometric mean over runs."""
    ratio: Estimate | None
    """Step time against the first row's; None for that."""
    load_median_ns: float | None
    load_max_ns: int | None
    exposed_share: float | None
    """Exposed data loading / wall."""
    read_bytes_per_s: float | None
    load_ratio: float | None
    """Median load against that from memory; None where there is no such row."""
    memory_share: float | None = None
    """`read_bytes_per_s` against that from memory."""
    file_bytes_per_s: float | None = None
    """The file's own speed (see `FileSpeed`); as the two below the median over runs."""
    file_cached_share: float | None = None
    file_share: float | None = None
    """What a rank reads a second against the file's own speed (see `DataLoading`)."""


class Axis(Struct, frozen=True, kw_only=True):
    """Runs that differ in one option only (and in what it brings with it)."""

    option: str
    name: str
    """What the runs have in common, as far as it differs between axes."""
    world_size: int
    rows: list[AxisRow]
    """The first is what the others are compared with."""


class Scaling(Struct, frozen=True, kw_only=True):
    """What several runs tell together."""

    series: list[ScalingSeries]
    axes: list[Axis]


class Insight(Struct, frozen=True, kw_only=True):
    """One sentence on where time goes that could be had back."""

    rule: str
    run: str
    """The run, or the series, that it is about."""
    sentence: str
    evidence: dict[str, float]
    """The figures it rests on, by name; times in ns, shares of one."""
    next_step: str
    gives_back_ns: float | None
    """Of a step, at most; None where that cannot be told."""


class Report(_Plotted, Struct, frozen=True, kw_only=True):
    """`report.json`: the result of one analysis."""

    schema_version: int = REPORT_VERSION
    perfkit_version: str
    runs: list[RunReport]
    findings: list[Finding] = []
    """About no one run: points of a sweep that left none."""
    scaling: Scaling | None = None
    """None where no runs belong together."""
    insights: list[Insight] = []
    """At most five, by the time they would give back; what makes the others doubtful comes first."""

    def tables(self) -> "Frames":
        """Return the report's tables as pandas DataFrames."""
        # The one upward import, made only here: the records themselves know nothing of pandas.
        from perfkit.frames import frames

        return frames(self)

    @property
    def steps(self) -> "DataFrame":
        """`tables().steps`."""
        return self.tables().steps

    @property
    def collectives(self) -> "DataFrame":
        """`tables().collectives`."""
        return self.tables().collectives

    @property
    def kernels(self) -> "DataFrame":
        """`tables().operators`: kernels, and of ranks without a device host operators."""
        return self.tables().operators


# ---- what `perfkit compare` says -----------------------------------------------------------------------------------

MeasureKind = Literal["run", "category", "loading", "efficiency", "collective", "operator"]


class Change(Struct, frozen=True, kw_only=True):
    """One figure before and after."""

    kind: MeasureKind
    name: str
    """What a gate calls it, for every kind but collectives and operators."""
    unit: Literal["ns", "1/s", "ratio"]
    before: float | None
    """Median over the runs of that side; None where it has no such figure."""
    after: float | None
    ratio: float | None
    """After / before."""
    interval: tuple[float, float] | None
    """95 % bootstrap interval of the ratio; None of too few runs, and where it has no end: before may be 0."""
    resampled: Resampling | None
    """What was drawn from for the interval."""
    significant: bool | None
    """Whether the interval leaves 1 out; None where there is none, or too few runs to tell."""


GateState = Literal["passed", "failed", "not_evaluated"]


class GateResult(Struct, frozen=True, kw_only=True):
    """A condition that must not hold, and whether it does."""

    expression: str
    state: GateState
    message: str
    """The figures it was decided by, or why it was not."""


class Side(Struct, frozen=True, kw_only=True):
    """The runs on one side of a comparison."""

    path: str
    runs: list[str]


class Comparison(_Shown, Struct, frozen=True, kw_only=True):
    """`perfkit compare`: two runs, or two sets of repeats."""

    schema_version: int = COMPARISON_VERSION
    perfkit_version: str
    before: Side
    after: Side
    changes: list[Change]
    """In order of kind; within collectives and operators by how much time they gained or lost."""
    gates: list[GateResult]
    findings: list[Finding]


# ---- what `perfkit history` says -----------------------------------------------------------------------------------

HistoryBy = Literal["run", "commit"]


class HistoryPoint(Struct, frozen=True, kw_only=True):
    """A run, or the runs of one commit."""

    runs: list[str]
    """In order of time."""
    started_at: str
    """Of the first; ISO 8601."""
    commit: str | None
    versions: dict[str, str]
    """Of the last."""
    step_ns: float
    """Median over steps of the largest wall over ranks (METRICS section 7); of several runs the median."""
    interval_ns: tuple[float, float] | None
    """95 % bootstrap interval; None of two runs, and of one with fewer than five steps."""
    resampled: Literal["runs", "steps"] | None
    """What was drawn from. Steps of one run share whatever disturbed that run."""
    samples_per_s: float | None
    efficiency: dict[str, float | None]
    """Factors by the names that they have in `Efficiency`."""


class Shift(Struct, frozen=True, kw_only=True):
    """A place where the step time changed for good, by more than the runs differ among themselves."""

    run: str
    """The first run after it."""
    commit: str | None
    last_before: str
    """The run before it."""
    before_ns: float
    """Median of the runs since the shift before, or the first."""
    after_ns: float
    """Median of the runs up to the next shift, or the last."""
    interval: tuple[float, float]
    """95 % bootstrap interval of after / before, over runs."""
    p_value: float
    """How often chance alone would show a shift as clear in these runs, anywhere among them (Pettitt's test)."""


class Lineage(Struct, frozen=True, kw_only=True):
    """Runs of one configuration on one kind of device."""

    settings: dict[str, Any]
    """What they have in common."""
    runs: int
    points: list[HistoryPoint]
    """In order of time."""
    shifts: list[Shift]
    reason: str | None
    """Why none can be told; None where one would have been found."""


class History(_Shown, Struct, frozen=True, kw_only=True):
    """`perfkit history`: runs over time, like with like."""

    schema_version: int = HISTORY_VERSION
    perfkit_version: str
    by: HistoryBy
    lineages: list[Lineage]
    """Those of the most runs first."""
    findings: list[Finding]

    def plot_steps(self) -> "Figure":
        """Return the step time over time as a plotly figure, a line a configuration."""
        from perfkit.report.history import plot_steps

        return plot_steps(self)


# ---- what `perfkit hta` says ---------------------------------------------------------------------------------------


class PeerTable(Struct, frozen=True, kw_only=True):
    """A table of another program's, as it is."""

    schema_version: int = PEER_VERSION
    tool: str
    """Its package and version."""
    analysis: str
    run: str
    ranks: list[int]
    columns: list[str]
    rows: list[list[str | int | float | bool | None]]
