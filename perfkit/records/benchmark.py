"""Results of `perfkit collectives` and `perfkit input`.

A change to them bumps `COLLECTIVES_VERSION` or `INPUT_VERSION`.
"""

from typing import Any, Final, Literal

from msgspec import Struct

from perfkit.records.common import Finding
from perfkit.records.comparison import GateResult
from perfkit.records.cross_rank import BandwidthFit
from perfkit.records.display import NotebookDisplay
from perfkit.records.manifest import MeshDimension


class BenchmarkChange(Struct, frozen=True, kw_only=True):
    """A measurement before and after."""

    series: str
    """The series in words."""
    before_ns: float
    after_ns: float
    ratio: float
    """Time after / before."""
    interval: tuple[float, float] | None
    """95 % bootstrap interval of the ratio over the repeats; None with fewer than three on a side."""
    significant: bool | None
    """Whether the interval excludes 1 and the change is larger than the assumed noise; None without an interval."""


COLLECTIVES_VERSION: Final = 1


class Series(Struct, frozen=True, kw_only=True):
    """What the measurements of one operator at several sizes have in common."""

    operator: str
    """As in traces (metrics.md section 5); `send_recv` is a ring, `send_recv_pairs` one-way pairs of ranks."""
    dimension: str | None = None
    """Dimension of the mesh along which the groups lie; None for the group of all ranks."""
    group_size: int
    groups: int = 1
    """Groups that communicate at the same time: all of the dimension's, or one alone."""
    concurrent: int = 1
    """Collectives of the same group that are in flight at the same time."""
    dtype: str
    in_place: bool
    """Whether input and output share memory."""


class Measurement(Struct, frozen=True, kw_only=True):
    """One operator at one size."""

    series: int
    """Index into `CollectiveBenchmark.series`."""
    bytes: int
    """Message size S as in metrics.md section 5: in total over ranks where parts of ranks are put together; 0 for a
    barrier."""
    elements: int
    samples_ns: list[float]
    """Time of one collective in each repeat: the slowest rank's mean over `calls` calls, one after the other. With
    several in flight, the time of all of them."""
    calls: int
    """Calls in each repeat."""
    time_ns: float
    """Median of the samples."""
    interval_ns: tuple[float, float] | None
    """95 % bootstrap interval of the median; None with fewer than three repeats."""
    algbw: float | None
    """Bytes per second, of all that are in flight together; None for a barrier."""
    busbw: float | None
    wrong: int | None
    """Elements with a wrong result, over all ranks; None for a barrier, which has none."""


class Overlap(Struct, frozen=True, kw_only=True):
    """One operator at one size beside a matrix multiplication that takes about as long."""

    series: int
    bytes: int
    communication_ns: float
    """The collective alone, like the next three a median over repeats of the slowest rank."""
    compute_ns: float
    """The multiplications alone."""
    overlapped_communication_ns: float
    """From issuing the collective to its end, while the multiplications run."""
    overlapped_compute_ns: float
    together_ns: float
    """Until both have ended."""
    hidden: float
    """Share of the shorter of the two that ran in the time of the other: (communication + compute - together) /
    the shorter; at least 0 and at most 1."""


class PairTime(Struct, frozen=True, kw_only=True):
    """Messages between two ranks, both ways at once."""

    ranks: tuple[int, int]
    latency_ns: float
    """Median time of the small message."""
    time_ns: float
    """Median time of the large message."""
    bandwidth: float
    """Bytes per second of the large message in each direction."""


class SlowLink(Struct, frozen=True, kw_only=True):
    """A pair, rank or host whose messages take longer than comparable ones, beyond noise."""

    kind: Literal["pair", "rank", "host"]
    ranks: list[int]
    """Both ranks of a pair; the ranks of a host."""
    host: str | None = None
    """The host's name, if it is one."""
    measure: Literal["latency", "bandwidth"]
    ratio: float
    """Its time / the median time of comparable pairs."""


class PairTest(Struct, frozen=True, kw_only=True):
    """`--pairs`: every pair of ranks, in rounds of disjoint pairs (a round-robin tournament)."""

    small_bytes: int
    large_bytes: int
    passes: int
    """How often the whole tournament was repeated."""
    rounds: int
    """Rounds per pass: ranks - 1, or as many as ranks if that is odd."""
    pairs: list[PairTime]
    slow: list[SlowLink]
    latency_noise: float
    """Relative variation of a pair's time between passes: the median over pairs of the median absolute deviation."""
    bandwidth_noise: float


class SeriesFit(Struct, frozen=True, kw_only=True):
    """Latency and bandwidth of a series."""

    series: int
    fit: BandwidthFit


class CollectiveChange(BenchmarkChange, frozen=True, kw_only=True):
    """A measurement before and after, by the time of a collective."""

    bytes: int


class BenchmarkComparison(Struct, frozen=True, kw_only=True):
    """`--compare`: an earlier file against this benchmark."""

    path: str
    assumed_noise: float | None
    changes: list[CollectiveChange]
    gates: list[GateResult]


class CollectiveBenchmark(NotebookDisplay, Struct, frozen=True, kw_only=True):
    """`perfkit collectives`: collectives as torch issues them, by size."""

    schema_version: int = COLLECTIVES_VERSION
    perfkit_version: str
    started_at: str
    world_size: int
    launcher: str
    hosts: list[str]
    """Host of each rank."""
    cores: list[int | None]
    """Cores that the ranks of its host may run on, of each rank; None if unknown."""
    device: str
    """Kind of device: cpu, cuda, xpu."""
    device_names: list[str]
    """Distinct names, sorted."""
    backend: str
    threads: int
    versions: dict[str, str]
    config: dict[str, Any]
    mesh: list[MeshDimension]
    """Empty without `--mesh`."""
    series: list[Series]
    measurements: list[Measurement]
    """In the order of `series`, then by size."""
    fits: list[SeriesFit]
    overlaps: list[Overlap]
    pairs: PairTest | None
    comparison: BenchmarkComparison | None = None
    findings: list[Finding]


INPUT_VERSION: Final = 1

CacheState = Literal["cold", "warm"]


class InputSeries(Struct, frozen=True, kw_only=True):
    """One way to read samples."""

    source: str
    read: str
    """`per-sample` or `batched`."""
    num_workers: int
    """Worker processes per rank that reads; 0: the rank itself reads."""
    files: int = 1
    """Files that the samples are divided among."""
    preload: bool = False
    """Whether the files were read into memory before."""
    readers: int | None = None
    """Ranks that read for the others; None if every rank reads."""
    layout: dict[str, bool | int | float | str | None] = {}
    """Options of the source that are not its defaults, by name."""


class InputPass(Struct, frozen=True, kw_only=True):
    """One pass over the samples: every rank loads its batches, one after the other."""

    load_ns: float
    """Time per load: that of the slowest rank for all of its loads / their number."""
    median_ns: float
    """Median time of a load, over all ranks."""
    p99_ns: float
    """99th percentile of the time of a load, over all ranks."""


class RankLoads(Struct, frozen=True, kw_only=True):
    """The loads of one rank over all passes."""

    rank: int
    load_ns: float
    """Mean time of a load."""
    median_ns: float
    p99_ns: float
    cpu_ns: float | None
    """CPU time per load, of the rank and its workers; None if that of its workers is unknown."""
    memory_bytes: int | None
    """Memory of the rank and its workers after a pass, less that of the rank before it opened the source; the largest
    over the repeats, without the page cache. None if unknown."""


class InputMeasurement(Struct, frozen=True, kw_only=True):
    """One way to read, with or without the files in the page cache."""

    series: int
    """Index into `InputBenchmark.series`."""
    cache: CacheState
    """Whether the files were dropped from the page cache before each pass, or had just been read."""
    cached_share: float | None
    """Share of the files' pages in the page cache when the passes began: the largest of cold passes, the smallest of
    warm ones; None without files, or if it is unknown."""
    loads: int
    """Loads per rank and pass."""
    passes: list[InputPass]
    load_ns: float
    """Median over the passes, like the next two."""
    median_ns: float
    p99_ns: float
    interval_ns: tuple[float, float] | None
    """95 % bootstrap interval of `load_ns`; None with fewer than three passes."""
    loads_per_s: float
    """Of all ranks together."""
    bytes_per_s: float
    """Bytes of the loaded batches, of all ranks together."""
    file_share: float | None
    """Bytes that the batches take in the files per second / the bandwidth of the file in the same state of the cache;
    None without files, or if the bandwidth is unknown."""
    ranks: list[RankLoads]


class HiddenLoads(Struct, frozen=True, kw_only=True):
    """How much of loading a training step hides: passes in which each load is followed by a sleep."""

    series: int
    step_ns: int
    load_ns: float
    """Time per load without steps, from the warm passes."""
    wait_ns: float
    """Mean wait for a load between steps, on the slowest rank; median over the passes."""
    hidden: float
    """1 - wait / load, at least 0; 0 without workers, because then nothing loads during a step."""


class InputFile(Struct, frozen=True, kw_only=True):
    """The files of a source."""

    source: str
    path: str
    """The first file."""
    files: int
    bytes: int
    """Of all files."""
    cold_bytes_per_s: float | None
    """One rank reading the first file from its beginning in large blocks, out of the page cache; None if that could not
    be emptied."""
    warm_bytes_per_s: float | None
    """The same, from the page cache."""
    stripe_count: int | None = None
    """Lustre: storage targets that the first file lies on; None on other file systems, or without `lfs`."""
    stripe_bytes: int | None = None


class InputChange(BenchmarkChange, frozen=True, kw_only=True):
    """A measurement before and after, by the time per load."""

    cache: CacheState


class InputComparison(Struct, frozen=True, kw_only=True):
    """`--compare`: an earlier file against this benchmark."""

    path: str
    assumed_noise: float | None
    changes: list[InputChange]
    gates: list[GateResult]


class InputBenchmark(NotebookDisplay, Struct, frozen=True, kw_only=True):
    """`perfkit input`: samples as training loads them, by source, way to read and workers."""

    schema_version: int = INPUT_VERSION
    perfkit_version: str
    started_at: str
    world_size: int
    launcher: str
    hosts: list[str]
    """Host of each rank."""
    cores: list[int | None]
    """Cores that the ranks of its host may run on, of each rank; None if unknown."""
    threads: int
    versions: dict[str, str]
    config: dict[str, Any]
    samples: int
    sample_bytes: int
    batch_size: int
    """Samples per load."""
    cache_dropped_by: str | None
    """How the page cache was emptied before cold passes; None if there are none."""
    series: list[InputSeries]
    measurements: list[InputMeasurement]
    """In the order of `series`, cold before warm."""
    hidden: list[HiddenLoads]
    files: list[InputFile]
    comparison: InputComparison | None = None
    findings: list[Finding]
