"""Benchmarks of collectives with known times."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from perfkit.records.benchmark import CollectiveBenchmark, Measurement, Series

ALL_REDUCE = Series(operator="all_reduce", group_size=2, dtype="float32", in_place=True)


def measurement(series: int, size: int, samples_ns: Sequence[float], factor: float = 1.0) -> Measurement:
    middle = sorted(samples_ns)[len(samples_ns) // 2]
    return Measurement(
        series=series,
        bytes=size,
        elements=size // 4,
        samples_ns=list(samples_ns),
        calls=1,
        time_ns=middle,
        interval_ns=(min(samples_ns), max(samples_ns)),
        algbw=size * 1e9 / middle,
        busbw=size * 1e9 / middle * factor,
        wrong=0,
    )


def benchmark(
    times: Mapping[int, Sequence[float]] | Sequence[tuple[Series, Mapping[int, Sequence[float]]]], **fields: Any
) -> CollectiveBenchmark:
    """Return a benchmark from the samples by size of an all-reduce between two ranks, or of several series."""
    rows = [(ALL_REDUCE, times)] if isinstance(times, Mapping) else list(times)
    record = CollectiveBenchmark(
        perfkit_version="0",
        started_at="2026-01-01T00:00:00+00:00",
        world_size=2,
        launcher="perfkit",
        hosts=["host", "host"],
        cores=[2, 2],
        device="cpu",
        device_names=["processor"],
        backend="gloo",
        threads=1,
        versions={"torch": "2"},
        config={},
        mesh=[],
        series=[series for series, _ in rows],
        measurements=[
            measurement(number, size, samples) for number, (_, of) in enumerate(rows) for size, samples in of.items()
        ],
        fits=[],
        overlaps=[],
        pairs=None,
        findings=[],
    )
    return replace(record, **fields)
