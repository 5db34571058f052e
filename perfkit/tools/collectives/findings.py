"""Latency and bandwidth of each series, and what must be known before a benchmark's numbers are trusted."""

from collections.abc import Iterator, Mapping, Sequence

from perfkit.base.statistics.bootstrap import FEWEST_RUNS
from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.ranks.bandwidth import fit_times
from perfkit.records.benchmark import CollectiveBenchmark, Measurement, Series, SeriesFit
from perfkit.records.common import Finding, Observation
from perfkit.report.wording import worded
from perfkit.report.wording.findings import word_all
from perfkit.subjects.comparison.gates import find_few_repeats, find_shared_cores
from perfkit.tools.collectives.config import OPERATIONS


def find_problems(record: CollectiveBenchmark) -> list[Finding]:
    repeats = min((len(row.samples_ns) for row in record.measurements), default=FEWEST_RUNS)
    cores = find_shared_cores(record.hosts, record.cores) if record.device == "cpu" else ()
    return word_all([*_wrong_results(record), *find_few_repeats(repeats), *cores, *_slow_links(record)])


def unsupported_series(record: CollectiveBenchmark, problems: Mapping[int, str]) -> list[Finding]:
    """Return a finding per series that was not measured because the backend does not support it."""
    unsupported = (
        {"series": record.series[number], "backend": record.backend, "error": problem}
        for number, problem in problems.items()
    )
    return word_all(Observation("unsupported_collective", values) for values in unsupported)


def _wrong_results(record: CollectiveBenchmark) -> Iterator[Observation]:
    wrong = [(record.series[row.series], row.bytes, row.wrong) for row in record.measurements if row.wrong]
    if wrong:
        yield Observation("wrong_results", {"wrong": wrong})


def _slow_links(record: CollectiveBenchmark) -> Iterator[Observation]:
    for link in record.pairs.slow if record.pairs else ():
        yield Observation("slow_link", {"link": link}, rank=link.ranks[0] if link.kind == "rank" else None)


def fit_series(series: Sequence[Series], measurements: Sequence[Measurement]) -> list[SeriesFit]:
    """Fit t = alpha + factor * S / beta to every series with a message, at one collective at a time."""
    fits = []
    for number, one in enumerate(series):
        times = {row.bytes: row.time_ns for row in measurements if row.series == number and row.bytes}
        if times and one.concurrent == 1:
            key = CollectiveKey(OPERATIONS[one.operator].operator, one.dimension, one.group_size)
            fits.append(SeriesFit(series=number, fit=worded(fit_times(key, times))))
    return fits
