"""Compare a benchmark with an earlier one, and evaluate conditions, by the rules of `perfkit compare`.

::

    expression = OPERATOR.latency | OPERATOR.busbw, an operator, and a limit, as in `perfkit.subjects.comparison.gates`

`latency` is the time of the smallest message, `busbw` the bus bandwidth of the largest one, in GB/s. A condition holds
if it holds for any series of the operator. The intervals are over repeats; with fewer than three on a side a change
cannot be told from noise, and a condition on it cannot be evaluated.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from perfkit.base.formatting import duration
from perfkit.records.benchmark import (
    BenchmarkComparison,
    CollectiveBenchmark,
    CollectiveChange,
    Measurement,
    Series,
)
from perfkit.records.common import Finding, Observation
from perfkit.records.comparison import GateResult
from perfkit.report.wording import worded
from perfkit.report.wording.benchmarks import describe_collectives
from perfkit.report.wording.findings import word_all
from perfkit.subjects.comparison.benchmark_gates import (
    Kind,
    Quantity,
    change_of,
    evaluate,
    find_other_settings,
    find_other_versions,
    unknown_metric,
)
from perfkit.subjects.comparison.gates import Gate
from perfkit.tables.labels import byte_rate

METRICS: Final[Mapping[str, Kind]] = {
    "latency": Kind("time", "a time (500us)", "+10%", True, 1.0, duration),
    "busbw": Kind("bandwidth", "a number of GB/s", "-10%", False, 1e9, byte_rate),
}


class Pair(NamedTuple):
    """The same measurement before and after."""

    series: Series
    before: Measurement
    after: Measurement
    change: CollectiveChange


def compare_benchmarks(
    path: str,
    before: CollectiveBenchmark,
    after: CollectiveBenchmark,
    gates: Sequence[Gate],
    assumed_noise: float | None = None,
) -> BenchmarkComparison:
    """Return every measurement that both have, before and after, and the outcome of the conditions."""
    pairs = list(_pairs(before, after, assumed_noise))
    return BenchmarkComparison(
        path=path,
        assumed_noise=assumed_noise,
        changes=[pair.change for pair in pairs],
        gates=worded([_evaluate(gate, pairs, after) for gate in gates]),
    )


def differences(before: CollectiveBenchmark, after: CollectiveBenchmark) -> list[Finding]:
    """Return what differs between two benchmarks besides the times."""
    return word_all(_differences(before, after))


def _differences(before: CollectiveBenchmark, after: CollectiveBenchmark) -> Iterator[Observation]:
    if not any(True for _ in _pairs(before, after, None)):
        yield Observation("configurations_differ", {"where": " on as many ranks"}, "nothing_common", "warning")
    settings = ("world_size", "backend", "threads", "launcher")
    yield from find_other_settings(before, after, settings, "info")
    if before.device_names != after.device_names:
        yield Observation("devices_differ", {"devices": [side.device_names for side in (before, after)]})
    yield from find_other_versions(before.versions, after.versions)


def _pairs(before: CollectiveBenchmark, after: CollectiveBenchmark, assumed: float | None) -> Iterator[Pair]:
    known = {(before.series[row.series], row.bytes): row for row in before.measurements}
    for row in after.measurements:
        series = after.series[row.series]
        old = known.get((series, row.bytes))
        if old is not None:
            yield Pair(series, old, row, _change(series, old, row, assumed))


def _change(series: Series, before: Measurement, after: Measurement, assumed: float | None) -> CollectiveChange:
    found = change_of(before.samples_ns, after.samples_ns, (before.time_ns, after.time_ns), assumed)
    return CollectiveChange(
        series=describe_collectives(series),
        bytes=after.bytes,
        before_ns=before.time_ns,
        after_ns=after.time_ns,
        **found._asdict(),
    )


def _evaluate(gate: Gate, pairs: Sequence[Pair], after: CollectiveBenchmark) -> GateResult:
    """Return the worst outcome over the series of the gate's operator."""
    name, _, metric = gate.metric.partition(".")
    measured = sorted({one.operator for one in after.series})
    if metric not in METRICS or name not in measured:
        return unknown_metric(gate, [f"{one}.{metric}" for one in measured for metric in METRICS])
    numbers = [number for number, one in enumerate(after.series) if one.operator == name]
    return evaluate(gate, METRICS[metric], [_quantity(metric, number, pairs, after) for number in numbers])


def _quantity(metric: str, number: int, pairs: Sequence[Pair], after: CollectiveBenchmark) -> Quantity:
    """Return the time of the smallest message of a series, or the bus bandwidth of the largest."""
    series = after.series[number]
    rows = sorted((row for row in after.measurements if row.series == number), key=lambda row: row.bytes)
    row = rows[0] if metric == "latency" else rows[-1]
    pair = next((pair for pair in pairs if pair.after is row), None)
    value = _value(metric, row)
    return Quantity(
        what=describe_collectives(series) if value is None else f"{describe_collectives(series)}, {row.bytes:,} B",
        value=value,
        before=None if pair is None else _value(metric, pair.before),
        significant=None if pair is None else pair.change.significant,
        repeats=0 if pair is None else min(len(one.samples_ns) for one in (pair.before, row)),
    )


def _value(metric: str, row: Measurement) -> float | None:
    return row.time_ns if metric == "latency" else row.busbw
