"""What several runs tell together."""

from typing import Literal

from msgspec import Struct

from perfkit.schema.sweep import ScalingKind


class Estimate(Struct, frozen=True, kw_only=True, gc=False):
    """A figure with its 95 % interval."""

    value: float
    interval: tuple[float, float] | None
    """None where there is too little to tell it from."""


Resampling = Literal["runs", "steps"]
"""What a bootstrap interval was drawn from. Steps of one run share whatever disturbed that run."""


class StepTimeEstimate(Struct, frozen=True, kw_only=True):
    """The step time of runs of one configuration (metrics.md section 7)."""

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
    """Global efficiency of a point and what it is the product of (metrics.md section 6); means over its runs."""

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
    step_time: StepTimeEstimate
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


class OptionRow(Struct, frozen=True, kw_only=True):
    """The runs with one value of an option."""

    value: str
    step_time: StepTimeEstimate
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
    """The file's own speed (see `FileBandwidth`); as the two below the median over runs."""
    file_cached_share: float | None = None
    file_share: float | None = None
    """What a rank reads a second against the file's own speed (see `DataLoading`)."""


class OptionComparison(Struct, frozen=True, kw_only=True):
    """Runs that differ in one option only (and in what it brings with it)."""

    option: str
    name: str
    """What the runs have in common, as far as it differs between axes."""
    world_size: int
    rows: list[OptionRow]
    """The first is what the others are compared with."""


class MultiRunSummary(Struct, frozen=True, kw_only=True):
    """What several runs tell together."""

    series: list[ScalingSeries]
    option_comparisons: list[OptionComparison]
