"""Compare a benchmark with an earlier one, and evaluate conditions, by the rules of `perfkit compare`.

::

    expression = NAME.METRIC, an operator, and a limit, as in `perfkit.subjects.comparison.gates`

Of `perfkit collectives` NAME is an operator: `latency` is the time of the smallest message, `busbw` the bus bandwidth
of the largest one, in GB/s. Of `perfkit input` it is a source: `load` is the time per load, `median` and `p99` those of
single loads, `rate` the loads per second of all ranks together, of warm passes; `cold_load` and so on of cold ones.

A condition holds if it holds for any series of that name. The intervals are over repeats; with fewer than three on a
side a change cannot be told from noise, and a condition on it cannot be evaluated.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from msgspec.json import encode

from perfkit.base.formatting import duration, rate
from perfkit.records.benchmark import (
    BenchmarkComparison,
    CollectiveBenchmark,
    CollectiveChange,
    InputBenchmark,
    InputChange,
    InputComparison,
)
from perfkit.records.common import Finding, Observation, Severity
from perfkit.records.comparison import GateResult
from perfkit.report.wording import worded
from perfkit.report.wording.comparisons import describe_collectives, describe_input
from perfkit.report.wording.findings import word_all
from perfkit.subjects.comparison.gates import (
    Gate,
    Kind,
    Quantity,
    change_of,
    evaluate,
    find_other_settings,
    find_other_versions,
    unknown_metric,
)
from perfkit.tables.labels import byte_rate

Value = Callable[[Any], Any]
Pair = tuple[Any, Any]
"""The same measurement before and after."""


class Metric(NamedTuple):
    """What a condition compares of a measurement."""

    kind: Kind
    times: Value
    """Times of the repeats that it depends on."""
    time: Value
    """Their median."""
    value: Value


class Tool(NamedTuple):
    """The benchmarks of one tool."""

    metrics: Mapping[str, Metric]
    name: Value
    """Of a series, in conditions."""
    describe: Callable[[Any], str]
    """A series in words."""
    field: str
    """What tells the measurements of a series apart."""
    where: Callable[[Any], str]
    """That in words."""
    choose: Callable[[str, list[Any]], list[Any]]
    """Takes a metric and the measurements of a name; returns those that a condition on it is about."""
    comparison: Callable[..., Any]
    change: Callable[..., Any]
    settings: tuple[str, ...]
    severity: Severity
    """Of a difference in these."""
    on_as_many: str


def compare_benchmarks(
    path: str, before: Any, after: Any, gates: Sequence[Gate], assumed_noise: float | None = None
) -> Any:
    """Return every measurement that both have, before and after, and the outcome of the conditions."""
    tool = _TOOLS[type(after)]
    pairs = list(_pairs(tool, before, after))
    return tool.comparison(
        path=path,
        assumed_noise=assumed_noise,
        changes=[_change(tool, pair, after, assumed_noise) for pair in pairs],
        gates=worded([_evaluate(tool, gate, pairs, after, assumed_noise) for gate in gates]),
    )


def differences(before: Any, after: Any) -> list[Finding]:
    """Return what differs between two benchmarks besides the times."""
    return word_all(_differences(_TOOLS[type(after)], before, after))


def _differences(tool: Tool, before: Any, after: Any) -> Iterator[Observation]:
    if not any(True for _ in _pairs(tool, before, after)):
        yield Observation("configurations_differ", {"where": tool.on_as_many}, "nothing_common", "warning")
    yield from find_other_settings(before, after, tool.settings, tool.severity)
    devices = [getattr(side, "device_names", None) for side in (before, after)]
    if devices[0] != devices[1]:
        yield Observation("devices_differ", {"devices": devices})
    yield from find_other_versions(before.versions, after.versions)


def _pairs(tool: Tool, before: Any, after: Any) -> Iterator[Pair]:
    def key(benchmark: Any, row: Any) -> tuple[bytes, Any]:
        return encode(benchmark.series[row.series]), getattr(row, tool.field)

    known = {key(before, row): row for row in before.measurements}
    for row in after.measurements:
        old = known.get(key(after, row))
        if old is not None:
            yield old, row


def _change(tool: Tool, pair: Pair, after: Any, assumed: float | None) -> Any:
    time = next(iter(tool.metrics.values()))
    old, row = pair
    middles = time.time(old), time.time(row)
    found = change_of(time.times(old), time.times(row), middles, assumed)
    return tool.change(
        series=tool.describe(after.series[row.series]),
        before_ns=middles[0],
        after_ns=middles[1],
        **{tool.field: getattr(row, tool.field)},
        **found._asdict(),
    )


def _evaluate(tool: Tool, gate: Gate, pairs: Sequence[Pair], after: Any, assumed: float | None) -> GateResult:
    """Return the worst outcome over the series of the gate's name."""
    name, _, text = gate.metric.partition(".")
    rows = tool.choose(text, [row for row in after.measurements if tool.name(after.series[row.series]) == name])
    metric = tool.metrics.get(text)
    if metric is None or not rows:
        measured = sorted({tool.name(series) for series in after.series})
        return unknown_metric(gate, [f"{one}.{other}" for one in measured for other in tool.metrics])
    old = {id(row): before for before, row in pairs}
    found = [
        _quantity(metric, old.get(id(row)), row, tool.describe(after.series[row.series]), tool.where(row), assumed)
        for row in rows
    ]
    return evaluate(gate, metric.kind, found)


def _quantity(metric: Metric, old: Any, row: Any, series: str, where: str, assumed: float | None) -> Quantity:
    value = metric.value(row)
    what = series if value is None else f"{series}, {where}"
    if old is None:
        return Quantity(what, value, None, None, 0)
    times, middles = (metric.times(old), metric.times(row)), (metric.time(old), metric.time(row))
    significant = change_of(*times, middles, assumed).significant
    return Quantity(what, value, metric.value(old), significant, min(map(len, times)))


def _ends(metric: str, rows: list[Any]) -> list[Any]:
    """Return the smallest message of each series for the latency, the largest for the bandwidth."""
    chosen = min if metric == "latency" else max
    by_series = {row.series: [one for one in rows if one.series == row.series] for row in rows}
    return [chosen(own, key=attrgetter("bytes")) for own in by_series.values()]


def _of_passes(field: str) -> Value:
    return lambda row: [getattr(one, field) for one in row.passes]


def _loads() -> dict[str, Metric]:
    time = Kind("time", "a time (5ms)", "+10%", True, 1.0, duration)
    rates = Kind("rate", "a number of loads per second", "-10%", False, 1.0, lambda value: rate(value, "loads"))
    loads, load = _of_passes("load_ns"), attrgetter("load_ns")
    median, p99 = attrgetter("median_ns"), attrgetter("p99_ns")
    warm = {
        "load": Metric(time, loads, load, load),
        "median": Metric(time, _of_passes("median_ns"), median, median),
        "p99": Metric(time, _of_passes("p99_ns"), p99, p99),
        "rate": Metric(rates, loads, load, attrgetter("loads_per_s")),
    }
    return warm | {f"cold_{name}": metric for name, metric in warm.items()}


_TIME: Final = Kind("time", "a time (500us)", "+10%", True, 1.0, duration)
_BANDWIDTH: Final = Kind("bandwidth", "a number of GB/s", "-10%", False, 1e9, byte_rate)
_SAMPLES, _TIME_NS = attrgetter("samples_ns"), attrgetter("time_ns")
_TOOLS: Final[dict[type, Tool]] = {
    CollectiveBenchmark: Tool(
        metrics={
            "latency": Metric(_TIME, _SAMPLES, _TIME_NS, _TIME_NS),
            "busbw": Metric(_BANDWIDTH, _SAMPLES, _TIME_NS, attrgetter("busbw")),
        },
        name=attrgetter("operator"),
        describe=describe_collectives,
        field="bytes",
        where=lambda row: f"{row.bytes:,} B",
        choose=_ends,
        comparison=BenchmarkComparison,
        change=CollectiveChange,
        settings=("world_size", "backend", "threads", "launcher"),
        severity="info",
        on_as_many=" on as many ranks",
    ),
    InputBenchmark: Tool(
        metrics=_loads(),
        name=attrgetter("source"),
        describe=describe_input,
        field="cache",
        where=attrgetter("cache"),
        choose=lambda metric, rows: [row for row in rows if (row.cache == "cold") == metric.startswith("cold_")],
        comparison=InputComparison,
        change=InputChange,
        settings=("world_size", "samples", "sample_bytes", "batch_size", "threads"),
        severity="warning",
        on_as_many="",
    ),
}
