"""Latency and bandwidth of each series, and what must be known before a benchmark's numbers are trusted."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from perfkit.analysis.cross_rank.bandwidth import fit_times
from perfkit.analysis.per_rank.communication.collective_metadata import CollectiveKey
from perfkit.collectives.config import OPERATIONS
from perfkit.comparison.benchmark_gates import find_few_repeats, find_shared_cores
from perfkit.report.views.collectives import describe, slow_sentence
from perfkit.schema.benchmark import CollectiveBenchmark, Measurement, Series, SeriesFit
from perfkit.schema.common import Finding
from perfkit.stats.bootstrap import FEWEST_RUNS
from perfkit.util.formatting import size

_MOST_NAMED: Final = 3


def find_problems(record: CollectiveBenchmark) -> list[Finding]:
    """Return the findings of a benchmark."""
    repeats = min((len(row.samples_ns) for row in record.measurements), default=FEWEST_RUNS)
    cores = find_shared_cores(record.hosts, record.cores) if record.device == "cpu" else ()
    return [*_wrong_results(record), *find_few_repeats(repeats), *cores, *_slow_links(record)]


def unsupported_series(record: CollectiveBenchmark, problems: Mapping[int, str]) -> Iterator[Finding]:
    """Yield a finding per series that was not measured because the backend does not support it.

    Args:
        record: The benchmark.
        problems: The backend's errors, by number of the series.
    """
    for number, problem in problems.items():
        what = f"{describe(record.series[number])} is not supported by {record.backend}"
        yield Finding(code="unsupported_collective", severity="warning", message=f"{what} and was left out: {problem}")


def _wrong_results(record: CollectiveBenchmark) -> Iterator[Finding]:
    wrong = [row for row in record.measurements if row.wrong]
    if wrong:
        named = "; ".join(
            f"{describe(record.series[row.series])}, {size(row.bytes)}: {row.wrong:,} of its elements"
            for row in wrong[:_MOST_NAMED]
        )
        more = f"; and {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else ""
        message = f"results are wrong ({named}{more}): the library, the network or the memory damages data"
        yield Finding(code="wrong_results", severity="error", message=message)


def _slow_links(record: CollectiveBenchmark) -> Iterator[Finding]:
    for link in record.pairs.slow if record.pairs else ():
        rank = link.ranks[0] if link.kind == "rank" else None
        yield Finding(code="slow_link", severity="warning", message=slow_sentence(link), rank=rank)


def fit_series(series: Sequence[Series], measurements: Sequence[Measurement]) -> list[SeriesFit]:
    """Fit t = alpha + factor * S / beta to every series with a message, at one collective at a time."""
    fits = []
    for number, one in enumerate(series):
        times = {row.bytes: row.time_ns for row in measurements if row.series == number and row.bytes}
        if times and one.concurrent == 1:
            key = CollectiveKey(OPERATIONS[one.operator].operator, one.dimension, one.group_size)
            fits.append(SeriesFit(series=number, fit=fit_times(key, times)))
    return fits
