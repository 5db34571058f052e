"""Result of `perfkit collectives`. A change to it bumps `COLLECTIVES_VERSION`."""

from typing import Any, Final, Literal

from msgspec import Struct

from perfkit.schema.benchmark.change import BenchmarkChange
from perfkit.schema.common import Finding
from perfkit.schema.comparison import GateResult
from perfkit.schema.cross_rank import BandwidthFit
from perfkit.schema.display import NotebookDisplay
from perfkit.schema.manifest import MeshDimension

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
