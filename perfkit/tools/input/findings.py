"""What a benchmark of input found wrong, or what makes its times uncertain."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from perfkit.records.benchmark import InputBenchmark
from perfkit.records.common import Finding, Observation
from perfkit.report.wording.findings import word_all
from perfkit.subjects.comparison.gates import find_few_repeats, find_shared_cores

_STILL_CACHED: Final = 0.05
_STRIPED_BYTES: Final = 64 << 20
"""A smaller file is read about as fast from one target."""


def find_problems(record: InputBenchmark, checksums: Mapping[int, Sequence[int]]) -> list[Finding]:
    repeats = min((len(row.passes) for row in record.measurements), default=0)
    return word_all(
        [
            *_different_batches(record, checksums),
            *find_few_repeats(repeats),
            *find_shared_cores(record.hosts, record.cores),
            *_cached(record),
            *_one_stripe(record),
        ]
    )


def _different_batches(record: InputBenchmark, checksums: Mapping[int, Sequence[int]]) -> Iterator[Observation]:
    """Compare the series that read in the same order with the first of them."""
    first: dict[tuple[int, int], int] = {}
    for number, series in enumerate(record.series):
        # With several files each worker reads its own, so that the order depends on their number.
        same = first.setdefault((series.files, series.num_workers if series.files > 1 else 0), number)
        if checksums[number] != checksums[same]:
            yield Observation("different_batches", {"series": series, "reference": record.series[same]})


def _cached(record: InputBenchmark) -> Iterator[Observation]:
    """Name the sources whose files were in the other state of the cache than the passes are for."""
    shares: dict[tuple[str, str], float | None] = {}
    for row in record.measurements:
        name = record.series[row.series].source
        if any(file.source == name for file in record.files) and not record.series[row.series].preload:
            shares[name, row.cache] = row.cached_share
    for (name, cache), share in shares.items():
        if cache == "cold" and (share is None or share > _STILL_CACHED):
            yield Observation("cache_not_dropped", {"source": name, "share": share})
        elif cache == "warm" and share is not None and share < 1 - _STILL_CACHED:
            yield Observation("not_cached", {"source": name, "share": share})


def _one_stripe(record: InputBenchmark) -> Iterator[Observation]:
    for file in record.files:
        each = file.bytes / file.files
        if file.stripe_count == 1 and each >= _STRIPED_BYTES and record.world_size > 1:
            yield Observation("one_stripe", {"source": file.source, "each_bytes": each})
