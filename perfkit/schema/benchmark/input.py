"""Result of `perfkit input`. A change to it bumps `INPUT_VERSION`."""

from typing import Any, Final, Literal

from msgspec import Struct

from perfkit.schema.benchmark.change import BenchmarkChange
from perfkit.schema.common import Finding
from perfkit.schema.comparison import GateResult
from perfkit.schema.display import NotebookDisplay

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
