"""Records of the multi-run analysis: scaling series and option comparisons."""

from typing import Literal

from msgspec import Struct

from perfkit.records.per_run.ledger import LedgerCause
from perfkit.records.run import LoadTimes
from perfkit.records.sweep import ScalingKind


class Estimate(Struct, frozen=True, kw_only=True, gc=False):
    """A value with its 95 % interval.

    Of a step time, and what is derived from it, this is an interval over runs only if `resampled` is `runs`, else the
    spread over the steps of single runs, which does not show how runs differ.
    """

    value: float
    interval: tuple[float, float] | None
    """None with too little data."""


Resampling = Literal["runs", "steps"]
"""What was resampled for an interval. The steps of one run share whatever disturbed that run."""


class StepTimeEstimate(Struct, frozen=True, kw_only=True):
    """The step time of runs of one configuration (metrics.md section 7)."""

    runs: list[str]
    """Names of the repeats."""
    measured_on: Literal["plain", "recorded"]
    """Steps without the profiler, or recorded ones."""
    resampled: Resampling | None
    step_ns: Estimate
    """Median over runs of the mean over steps of the largest wall time over ranks."""
    samples_per_s: Estimate | None
    tokens_per_s: float | None

    @property
    def samples_per_step(self) -> int | None:
        """Samples that all ranks train on in a step; None if unknown. Ranks of one mesh may share theirs."""
        return None if self.samples_per_s is None else round(self.samples_per_s.value * self.step_ns.value / 1e9)


class Factors(Struct, frozen=True, kw_only=True):
    """Global efficiency of a point and its factors (metrics.md section 6); means over its runs."""

    global_efficiency: float
    load_balance: float
    host: float
    input: float
    serialisation: float
    transfer: float
    computation_scaling: float
    """Total compute time per step at the reference / here (weak scaling: times the ratio of world sizes)."""


class ScalingPart(Struct, frozen=True, kw_only=True):
    """A part of the mean step of a point, as in the ledgers of its runs."""

    cause: LedgerCause
    ranks: list[int]
    """The late ranks; empty for other parts, and where runs differ."""
    ns: float
    """Per step; the parts add up to the mean step."""
    lost: float
    """Percentage points of efficiency: by how much it is longer than in the ideal step, relative to the step. Negative:
    gained. The parts add up to what is lost against the smallest world size."""


class ScalingPoint(Struct, frozen=True, kw_only=True):
    """One world size of a series."""

    world_size: int
    nodes: int
    batch_size: int
    """Samples per rank and step."""
    threads: int | None
    """CPU threads per rank; None if unknown or different."""
    oversubscribed: str | None
    """What is oversubscribed, such as "4 ranks on 2 cores"; None if nothing is."""
    step_time: StepTimeEstimate
    speedup: Estimate
    """Strong: of the step; weak: of the throughput. Relative to the smallest world size."""
    efficiency: Estimate
    karp_flatt: Estimate | None
    """Experimentally determined serial fraction (Karp and Flatt 1990); None at the reference and for weak scaling."""
    factors: Factors | None
    factors_reason: str | None
    """Why there are no factors."""
    parts: list[ScalingPart] = []
    """Empty unless all runs of the series have recorded steps."""
    computation_ns: Estimate | None
    """Compute time per step, summed over ranks, geometric mean over runs; the interval is of the mean over steps, or of
    the median over runs."""


class LostEfficiency(Struct, frozen=True, kw_only=True):
    """Global efficiency lost between neighbouring world sizes, in percentage points; negative values are gains.

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
    """A scaling law fitted to all runs of a series by least squares of the relative error."""

    model: FitModel
    parameters: dict[str, Estimate]
    """amdahl, gustafson: `serial_fraction`; usl: `g` (samples/s of one rank), `s` (contention), `k` (coherence)."""
    residual: float | None
    """RMS relative error over runs."""
    peak: float | None
    """World size beyond which throughput falls, for usl; None if it never does, and for the others."""
    reason: str | None
    """Why there is no fit, or why it has no intervals."""


class Forecast(Struct, frozen=True, kw_only=True):
    """Forecast for an unmeasured world size by the universal scalability law."""

    world_size: int
    samples_per_s: Estimate | None
    efficiency: Estimate | None
    reason: str | None
    """Why there is no forecast."""
    all_reduce_ns: float | None = None
    """Lower bound on the time of a step's all-reduces there, overlapped or not, from their latency and bandwidth at the
    largest measured world size. None if no latency and bandwidth could be fitted."""


class FailedPoint(Struct, frozen=True, kw_only=True):
    """A run that belongs to a series but has no step time."""

    run: str
    world_size: int
    reason: str


class ScalingSeries(Struct, frozen=True, kw_only=True):
    """Runs that differ only in world size and, for strong scaling, in the batch per rank."""

    name: str
    """Workload, kind, and the options in which it differs from the other series."""
    sentence: str = ""
    """How well it scales, and to what it loses most."""
    kind: ScalingKind
    """Strong: the same global batch; weak: the same batch per rank."""
    workload: str
    varies: dict[str, str]
    """The options in which series differ, with the values of this one."""
    batch_size: int
    """Strong: of all ranks; weak: of each."""
    points: list[ScalingPoint]
    """By world size; the first is the reference."""
    lost: list[LostEfficiency]
    fits: list[Fit]
    forecasts: list[Forecast]
    failed: list[FailedPoint]
    notes: list[str]
    """What limits the trust in the numbers."""


class OptionLoads(Struct, frozen=True, kw_only=True):
    """The loads of the runs with one value of an option, in one state of the page cache."""

    times: LoadTimes
    """Of repeats the median of each quartile."""
    ratio: Estimate | None
    """Median relative to that from memory; None without such a row. The interval follows from those of both medians,
    and contains the ratio of the fastest loads: what disturbs a machine only adds to a load."""


class OptionRow(Struct, frozen=True, kw_only=True):
    """The runs with one value of an option."""

    value: str
    step_time: StepTimeEstimate
    efficiency: float | None
    """Parallel efficiency, geometric mean over runs."""
    ratio: Estimate | None
    """Step time relative to the first row; None for the first row."""
    loads: list[OptionLoads] = []
    """Warm ones first."""
    exposed_share: float | None
    """Exposed data loading / wall time."""
    read_bytes_per_s: float | None
    memory_share: float | None = None
    """`read_bytes_per_s` relative to that from memory."""
    file_bytes_per_s: float | None = None
    """Read bandwidth of the file (see `FileBandwidth`); median over runs, as the next two."""
    file_cached_share: float | None = None
    file_share: float | None = None
    """Read rate per rank / read bandwidth of the file (see `DataLoading`)."""


class OptionComparison(Struct, frozen=True, kw_only=True):
    """Runs that differ in one option only (and in the options that depend on it)."""

    option: str
    name: str
    """What the runs share, as far as it differs between comparisons."""
    world_size: int
    rows: list[OptionRow]
    """The first is the baseline."""


class StrategyRow(Struct, frozen=True, kw_only=True):
    """The runs with one strategy: a mesh of ranks, and what is divided among data-parallel ones."""

    strategy: str
    step_time: StepTimeEstimate
    ratio: Estimate | None
    """Step time relative to the fastest strategy; None for that one."""
    memory_bytes: int | None
    """Parameters, gradients and optimizer state of the rank that holds most (metrics.md section 11), median over runs;
    None if any is unknown."""
    parts_ns: dict[str, float]
    """Where the mean profiled step of a rank goes: exposed time by category, that of communication by dimension. Empty
    without profiled steps."""


class StrategyComparison(Struct, frozen=True, kw_only=True):
    """Runs that share a model between as many ranks in different ways, with as many samples per step."""

    name: str
    world_size: int
    samples_per_step: int
    rows: list[StrategyRow]
    """The fastest first."""
    sentence: str
    """Which is fastest, why, and which holds least."""


class MultiRunSummary(Struct, frozen=True, kw_only=True):
    """Result of the multi-run analysis."""

    series: list[ScalingSeries]
    option_comparisons: list[OptionComparison]
    strategy_comparisons: list[StrategyComparison] = []
