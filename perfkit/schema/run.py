"""Everything about one run."""

from typing import Any, Literal

from msgspec import Struct

from perfkit.schema.common import Finding
from perfkit.schema.cross_rank import CrossRankSummary
from perfkit.schema.display import RunPlots
from perfkit.schema.manifest import FileBandwidth, Injection, Throughput
from perfkit.schema.rank import RankReport


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
    file_bandwidth: FileBandwidth | None = None
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
    """What became of a run's time, as factors that multiply (metrics.md section 6); each in (0, 1], or None."""

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


class StepTimes(Struct, frozen=True, kw_only=True):
    """How long each step took by the run's own clock: the largest wall time over ranks (metrics.md section 7)."""

    plain_ns: list[int]
    """Warm steps without the profiler."""
    recorded_ns: list[int]
    """Recorded steps."""


class HostUsage(Struct, frozen=True, kw_only=True):
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
    external_window_ns: int
    """From the start of the first device event to the end of the last."""
    external_compute_ns: int
    external_other_ns: int
    external_idle_ns: int
    rounding_ns: int
    """By so much the other's rounding can change a sum at most."""


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
    cross_rank: CrossRankSummary | None
    """None for a single rank."""
    cross_check: CrossCheck | None = None
    """None where it was not asked for, or where the other program could not."""
    findings: list[Finding]
    batch_size: int | None = None
    """Samples a rank and step; None where the run does not say."""
    hosts: list[HostUsage] = []
    """Empty without a manifest, or where the run did not come so far."""
    step_times: StepTimes | None = None
    """None without a manifest, or where the run did not come so far."""
