"""Benchmarks of input with known times."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from perfkit.records.benchmark import (
    CacheState,
    InputBenchmark,
    InputFile,
    InputMeasurement,
    InputPass,
    InputSeries,
    RankLoads,
)

HDF5 = InputSeries(source="hdf5", read="batched", num_workers=0)
MEMORY = InputSeries(source="memory", read="batched", num_workers=0)
FILE = InputFile(source="hdf5", path="a.h5", files=1, bytes=1 << 30, cold_bytes_per_s=1e9, warm_bytes_per_s=4e9)


def measurement(
    series: int, load_ms: Sequence[float], cache: CacheState = "warm", ranks: int = 1, **fields: Any
) -> InputMeasurement:
    passes = [InputPass(load_ns=ms * 1e6, median_ns=ms * 1e6, p99_ns=ms * 3e6) for ms in load_ms]
    middle = sorted(load_ms)[len(load_ms) // 2] * 1e6
    own = RankLoads(rank=0, load_ns=middle, median_ns=middle, p99_ns=3 * middle, cpu_ns=1e5, memory_bytes=1 << 20)
    record = InputMeasurement(
        series=series,
        cache=cache,
        cached_share=None,
        loads=10,
        passes=passes,
        load_ns=middle,
        median_ns=middle,
        p99_ns=3 * middle,
        interval_ns=(min(load_ms) * 1e6, max(load_ms) * 1e6),
        loads_per_s=ranks * 1e9 / middle,
        bytes_per_s=ranks * 1e12 / middle,
        file_share=None,
        ranks=[replace(own, rank=rank) for rank in range(ranks)],
    )
    return replace(record, **fields)


def benchmark(measurements: Sequence[InputMeasurement], **fields: Any) -> InputBenchmark:
    """Return a benchmark of `MEMORY` (series 0) and `HDF5` (series 1) on as many ranks as the measurements have."""
    ranks = len(measurements[0].ranks)
    record = InputBenchmark(
        perfkit_version="0",
        started_at="2026-01-01T00:00:00+00:00",
        world_size=ranks,
        launcher="perfkit",
        hosts=["host"] * ranks,
        cores=[8] * ranks,
        threads=1,
        versions={"torch": "2"},
        config={},
        samples=1024,
        sample_bytes=16384,
        batch_size=32,
        cache_dropped_by=None,
        series=[MEMORY, HDF5],
        measurements=list(measurements),
        hidden=[],
        files=[],
        findings=[],
    )
    return replace(record, **fields)
