"""What must be known before a benchmark's numbers are trusted."""

from collections.abc import Iterator, Mapping
from typing import Final

from perfkit.report.content.collectives.pairs import slow_sentence
from perfkit.report.content.collectives.series import describe
from perfkit.schema.benchmark.collectives import CollectiveBenchmark
from perfkit.schema.common import Finding
from perfkit.stats.bootstrap import FEWEST_RUNS
from perfkit.util.formatting import escape_unprintable, size

_MOST_NAMED: Final = 3


def find_problems(record: CollectiveBenchmark) -> list[Finding]:
    """Return the findings of a benchmark."""
    return [*_wrong_results(record), *_few_repeats(record), *_shared_cores(record), *_slow_links(record)]


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


def _few_repeats(record: CollectiveBenchmark) -> Iterator[Finding]:
    repeats = min((len(row.samples_ns) for row in record.measurements), default=FEWEST_RUNS)
    if repeats < FEWEST_RUNS:
        message = f"{repeats} repeats do not show how much times vary: use --repeats {FEWEST_RUNS} or more"
        yield Finding(code="too_few_repeats", severity="info", message=message)


def _shared_cores(record: CollectiveBenchmark) -> Iterator[Finding]:
    if record.device != "cpu":
        return
    for host, cores in dict(zip(record.hosts, record.cores, strict=True)).items():
        ranks = record.hosts.count(host)
        if cores is not None and ranks > cores:
            message = (
                f"the {ranks} ranks on {escape_unprintable(host)} share {cores} core{'s' if cores > 1 else ''}: times "
                "include waiting for a core"
            )
            yield Finding(code="oversubscribed", severity="warning", message=message)


def _slow_links(record: CollectiveBenchmark) -> Iterator[Finding]:
    for link in record.pairs.slow if record.pairs else ():
        rank = link.ranks[0] if link.kind == "rank" else None
        yield Finding(code="slow_link", severity="warning", message=slow_sentence(link), rank=rank)
