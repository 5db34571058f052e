"""Everything about one run."""

from typing import Any, Final, Literal, get_args

from msgspec import Struct

from perfkit.records.common import Finding, MeasuredOn
from perfkit.records.cross_rank import BandwidthShare, CrossRankSummary
from perfkit.records.display import RunPlots
from perfkit.records.manifest import FileBandwidth, Injection, RankMemory, SamplesFrom, Throughput
from perfkit.records.per_rank.memory import MemorySnapshot
from perfkit.records.per_rank.sharding import DividedWork
from perfkit.records.per_run.comm_logs import NcclLogs, OneCclLogs
from perfkit.records.per_run.communication import DimensionSummary, LinkedCollective
from perfkit.records.per_run.critical_path import CriticalPath
from perfkit.records.per_run.flame_graph import FlameGraph
from perfkit.records.per_run.ledger import Ledger, StepTime
from perfkit.records.per_run.monitor import MonitorSummary
from perfkit.records.per_run.pauses import RankPauses
from perfkit.records.per_run.pipeline import Pipeline
from perfkit.records.per_run.step_timeline import StepTimeline
from perfkit.records.per_run.whatif import PredictedSaving
from perfkit.records.rank import RankReport
from perfkit.records.roofline import Roofline

CacheState = Literal["cold", "warm"]


class LoadTimes(Struct, frozen=True, kw_only=True):
    """How long a rank's loads take, of all ranks; a load is the wait for one batch (metrics.md section 2)."""

    cache: CacheState | None
    """Whether the page cache had the file (`RunManifest.cold_steps`); None if unknown, and for what is read from no
    file."""
    measured_on: MeasuredOn
    """Of steps without the profiler, by the run's own clock, or of recorded ones, by the traces."""
    count: int
    least_ns: float
    quartiles_ns: tuple[float, float, float]
    """The middle one is the median."""
    interval_ns: tuple[float, float] | None
    """95 % interval of the median, over the loads, or over repeats where there are three; None with fewer than five
    loads."""
    max_ns: float


class DataLoading(Struct, frozen=True, kw_only=True):
    """Data loading of a run, over all its ranks and recorded steps."""

    source: str | None
    count: int
    median_ns: int
    max_ns: int
    max_rank: int | None
    max_step: int | None
    exposed_share: float
    """Exposed data loading / wall time, over ranks and steps."""
    read_bytes_per_s: float | None
    """Bytes of samples delivered per second of waiting for them, summed over ranks; None without a manifest, or if the
    run's own rate is None (see `Throughput`)."""
    times: list[LoadTimes] = []
    """One per state of the page cache, warm first."""
    file_bandwidth: FileBandwidth | None = None
    """From the manifest."""
    file_share: float | None = None
    """Mean read rate per rank / read bandwidth of the file. Above one if the file is compressed, or was cached better
    during the run than after it."""


class ProfilerCost(Struct, frozen=True, kw_only=True):
    """Cost of profiling by the run's own clock (mean over steps, on the slowest rank)."""

    plain_step_ns: int | None
    recorded_step_ns: int | None
    interval_ns: tuple[int, int] | None = None
    """Lower and upper bound of the difference, each with 95 % confidence over the steps; None with too few steps."""
    added_ns: int | None = None
    """Recorded minus plain step time; None if the lower bound is not above zero, or less than a quarter of
    the upper one: the variation between steps leaves no figure."""
    ratio: float | None
    """Recorded / plain step time; None like `added_ns`."""
    reason: str | None
    """Why there is no ratio."""
    writing_ns: int = 0
    """How long stopping the profiler and writing traces took, in no step: the largest over ranks."""
    trace_bytes: int = 0
    """Size of the files of all ranks' traces; 0 if unknown."""


DoubtCode = Literal[
    "busy_machine",
    "events_lost",
    "start_skew",
    "ranks_missing",
    "matches_suspect",
    "impossible_times",
    "no_steps",
    "not_typical",
    "few_steps",
    "uneven_steps",
    "compilation_recorded",
    "profiler_cost",
    "varying_steps",
    "possible_communication",
]
"""What makes an answer doubtful, in order of weight."""
DOUBTS: Final[tuple[DoubtCode, ...]] = get_args(DoubtCode)


class Doubt(Struct, frozen=True, kw_only=True):
    """What makes the answer about a run doubtful (metrics.md section 27)."""

    code: DoubtCode
    overrules: bool = False
    """Whether the answer may be wrong altogether, so that it must not stand without this."""
    what: str
    remedy: str = ""
    """What would settle it; empty if nothing does."""
    figures: dict[str, float] = {}
    """What it rests on, by name; times in ns, shares as fractions of one."""
    findings: list[str] = []
    """Codes of findings that say the same in full."""


class CoreLoad(Struct, frozen=True, kw_only=True):
    """Use of the cores that ranks share, while they recorded (metrics.md section 27): numbers of cores, as means."""

    ranks: list[int]
    """The ranks that may run on them."""
    cores: int
    """How many cores."""
    own: float
    """Kept busy by the ranks and their children."""
    others: float
    """Kept busy by other processes, or stolen by the hypervisor."""
    idle: float
    taken_share: float
    """`others` beyond what stayed idle, as a share of the cores: what the ranks could have used."""


Bound = Literal[
    "compute", "communication", "input", "memcpy", "host", "imbalance", "bubble", "pauses", "none", "unknown"
]


class Verdict(Struct, frozen=True, kw_only=True):
    """The headline of a run: the row of its ledger that matters first (metrics.md section 10)."""

    bound: Bound
    """What that row is about: `host` for idle time, `input` for data loading, `imbalance` for late ranks, `pauses` for
    what interrupts training besides the steps; `compute` if no loss is large and compute is most of the step, `none`
    if nothing is, `unknown` if the traces do not show it."""
    share: float
    """Of the step, 0 to 1: that row's; of pauses, of the steps and the pauses."""
    sentence: str


FACTORS: Final = ("load_balance", "host", "input", "serialisation", "transfer")
"""The fields of `Efficiency` whose product is `parallel`."""


class Efficiency(Struct, frozen=True, kw_only=True):
    """Efficiency of a run as multiplicative factors (metrics.md section 6); each in (0, 1], or None."""

    parallel: float | None
    """Mean compute / wall: the product of the five below; None if ranks are or may be missing."""
    load_balance: float | None
    """Loss from unequal compute over ranks; None if ranks are or may be missing."""
    host: float | None
    """Loss from copies, launch gaps, Python and synchronisation."""
    input: float | None
    """Loss from waiting for data."""
    serialisation: float | None
    """Loss from waiting for other ranks that is not due to load imbalance."""
    transfer: float | None
    """Loss from the data transfer of collectives."""
    au: float | None
    """Accelerator utilisation: compute / wall time without the first measured step; None if it is the only one."""
    t_ns: int
    """Wall time summed over steps, the largest over ranks, from when the last of them began to record."""
    t_ideal_ns: int
    """Time of the run with zero-cost transfers, by replay; at most `t_ns`."""
    own_ns: int
    """Time of the rank with the most compute, copies, idle time and data loading: without any communication."""
    replayed_ns: int
    """The same before it is clipped to its bounds."""
    mean_compute_ns: float
    max_compute_ns: int
    sum_compute_ns: int
    wait_ns: int
    """Exposed communication that was waiting for other ranks, summed over ranks."""
    transfer_ns: int
    """The rest of exposed communication."""
    unmatched_ns: int
    """The part of it without a match or not n-to-n, which counts as transfer."""
    reason: str | None
    """Why factors are missing."""


class StepTimes(Struct, frozen=True, kw_only=True):
    """Wall time of each step by the run's own clock, on the slowest rank (metrics.md section 7)."""

    plain_ns: list[int]
    """Warm steps without the profiler."""
    recorded_ns: list[int]
    """Recorded steps."""


class HostUsage(Struct, frozen=True, kw_only=True):
    """Devices, threads and cores that a run's ranks use on one host."""

    host: str
    device: str
    """Type of device that its ranks compute on: cpu, cuda, xpu."""
    device_name: str
    ranks: int
    threads: int
    """CPU threads of all its ranks."""
    cores: int | None
    """Cores that they may run on, in total; None if unknown."""


class CrossCheckRow(Struct, frozen=True, kw_only=True):
    """A rank's time according to perfkit and to another tool, summed over its steps."""

    rank: int
    window_ns: int
    """All steps, from the start of the first on the host to the end of the last on host and device."""
    compute_ns: int
    other_ns: int
    """Exposed communication and copies."""
    idle_ns: int
    """Overhead and exposed data loading: the device is idle."""
    external_window_ns: int
    """From the start of the first device event to the end of the last."""
    external_compute_ns: int
    external_other_ns: int
    external_idle_ns: int
    rounding_ns: int
    """Largest change of a sum by the other tool's rounding; 0 where all times are whole microseconds."""
    device_events: int | None = None
    """Kernels and copies within the steps; None without a device."""
    external_device_events: int | None = None
    """Kernels and copies that the other tool kept; None if it does not tell."""
    computing_events: int | None = None
    """Those of `device_events` that compute; None without a device."""
    external_computing_events: int | None = None
    """Those of `external_device_events` that compute; None if the other tool does not tell."""
    external_synchronisations: int = 0
    """Events of waiting for the device that the other tool counts as work."""
    external_host_events: int = 0
    """Events of the host that the other tool counts as work of the device."""


class CrossCheck(Struct, frozen=True, kw_only=True):
    """`perfkit analyze --cross-check hta`."""

    tool: str
    rows: list[CrossCheckRow]


class RunReport(RunPlots, Struct, frozen=True, kw_only=True):
    """Everything about one run."""

    run: str
    path: str
    workload: str | None
    source: str | None
    world_size: int
    """From the manifest or the headers, otherwise the highest rank plus one."""
    state: str | None
    """From the manifest; None for a foreign trace."""
    verdict: Verdict
    step_time: StepTime | None = None
    """None without recorded steps."""
    ledger: Ledger | None = None
    """Where the mean step's time goes; None without recorded steps, and if recommendations were not asked for."""
    ranks: list[RankReport]
    data_loading: DataLoading | None
    profiler_cost: ProfilerCost | None
    throughput: Throughput | None
    config: dict[str, Any] | None
    """From the manifest; None for a foreign trace."""
    started_at: str | None = None
    """From the manifest, as are the next three."""
    commit: str | None = None
    versions: dict[str, str] = {}
    device_names: list[str] = []
    """Distinct names, sorted."""
    injections: list[Injection]
    efficiency: Efficiency | None
    """None without steps of known ranks."""
    cross_rank: CrossRankSummary | None
    """None for a single rank."""
    dimensions: DimensionSummary | None = None
    """None without collectives of known ranks."""
    cross_check: CrossCheck | None = None
    """None if not requested, or if the other tool failed."""
    findings: list[Finding]
    batch_size: int | None = None
    """Samples per rank and step; None if unknown."""
    batch_size_from: SamplesFrom | None = None
    """Of a script: how `batch_size` is known."""
    hosts: list[HostUsage] = []
    """Empty without a manifest, or if the run failed early."""
    step_times: StepTimes | None = None
    """None without a manifest, or if the run failed early."""
    pipelines: list[Pipeline] = []
    """Those with the largest bubbles first; empty if no micro-batches of a pipeline are annotated."""
    divided_work: list[DividedWork] = []
    """One per dimension of `tp`, `cp` and `ep` that has communication."""
    rank_memory: list[RankMemory] = []
    """What each rank holds, by rank (metrics.md section 11); empty if it was not measured on all."""
    critical_path: CriticalPath | None = None
    """None without ranks, or if they recorded different steps."""
    bandwidth_shares: list[BandwidthShare] | None = None
    """By total time of all ranks, largest first; None without `--collectives`."""
    roofline: Roofline | None = None
    """None unless shapes were recorded on all ranks (`record_shapes`)."""
    memory_snapshot: MemorySnapshot | None = None
    """None without `--memory-snapshot`."""
    nccl_logs: NcclLogs | None = None
    """None without logs of NCCL, given by `--comm-log` or in the run's folder."""
    one_ccl_logs: OneCclLogs | None = None
    """None without logs of oneCCL, given by `--comm-log`."""
    monitor: MonitorSummary | None = None
    """The whole run, by the monitor's logs; None without any."""
    predicted_savings: list[PredictedSaving] = []
    """Of the changes that recommendations may be about; empty if the steps cannot be replayed."""
    pauses: list[RankPauses] = []
    """Checkpoints, evaluations and logging, which are no part of the steps, by phase and rank."""
    step_marker: str | None = None
    """The regular expression for the names of steps that the analysis was given; None for `ProfilerStep#N`."""
    data_marker: str | None = None
    """The regular expression for the names of what loads data that the analysis was given; None without one."""
    linked_collectives: list[LinkedCollective] = []
    """The 200 longest matched collectives of each of the two steps that a page draws, on the ranks that took part."""
    step_timelines: list[StepTimeline] = []
    """What ran when in a few steps; empty unless a page is written."""
    flame_graphs: list[FlameGraph] = []
    """Of the slowest rank, by function and by module; empty unless a page is written, and where none was recorded."""
    trust: list[Doubt] = []
    """What makes the answer doubtful, in order of weight."""
    core_loads: list[CoreLoad] = []
    """Use of the cores, by sets of cores that ranks share; empty unless all ranks have recorded it."""
    subjects: dict[str, Any] = {}
    """Records of subjects without a field here, such as those that packages add, by name."""

    @property
    def lacks_events(self) -> bool:
        """Whether events are known to be missing in traces: what they would show is not known to be absent."""
        return any(finding.code in ("damaged_trace", "skipped_events") for finding in self.findings)

    @property
    def on_busy_machine(self) -> bool:
        """Whether other processes kept its cores so busy that no time can be put down to storage, network or a rank."""
        return any(doubt.code == "busy_machine" for doubt in self.trust)

    @property
    def is_partial(self) -> bool:
        """Whether ranks have no trace, or may have none because their number is unknown."""
        unknown = any(finding.code == "world_size_unknown" for finding in self.findings)
        return unknown or len(self.ranks) < self.world_size
