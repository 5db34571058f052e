"""Compare a benchmark of input with an earlier one, and evaluate conditions, by the rules of `perfkit compare`.

::

    expression = SOURCE.METRIC, an operator, and a limit, as in `perfkit.subjects.comparison.gates`

`load` is the time per load, `median` and `p99` those of single loads, `rate` the loads per second of all ranks
together, of warm passes; `cold_load` and so on of cold ones. A condition holds if it holds for any series of the
source.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from perfkit.base.formatting import duration, rate
from perfkit.records.benchmark import InputBenchmark, InputChange, InputComparison, InputMeasurement, InputPass
from perfkit.records.common import Finding, Observation
from perfkit.records.comparison import GateResult
from perfkit.report.wording import worded
from perfkit.report.wording.benchmarks import describe_input
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

_TIME: Final = Kind("time", "a time (5ms)", "+10%", True, 1.0, duration)
_METRICS: Final[Mapping[str, tuple[Kind, Callable[[InputPass], float]]]] = {
    "load": (_TIME, lambda one: one.load_ns),
    "median": (_TIME, lambda one: one.median_ns),
    "p99": (_TIME, lambda one: one.p99_ns),
    "rate": (
        Kind("rate", "a number of loads per second", "-10%", False, 1.0, lambda value: rate(value, "loads")),
        lambda one: one.load_ns,
    ),
}
"""What a metric is, and the time of a pass that it depends on."""

METRICS: Final = (*_METRICS, *(f"cold_{name}" for name in _METRICS))


class Pair(NamedTuple):
    """The same measurement before and after."""

    before: InputMeasurement
    after: InputMeasurement


def compare_benchmarks(
    path: str,
    before: InputBenchmark,
    after: InputBenchmark,
    gates: Sequence[Gate],
    assumed_noise: float | None = None,
) -> InputComparison:
    """Return every measurement that both have, before and after, and the outcome of the conditions."""
    pairs = list(_pairs(before, after))
    return InputComparison(
        path=path,
        assumed_noise=assumed_noise,
        changes=[_change(pair, after, assumed_noise) for pair in pairs],
        gates=worded([_evaluate(gate, pairs, after, assumed_noise) for gate in gates]),
    )


def differences(before: InputBenchmark, after: InputBenchmark) -> list[Finding]:
    """Return what differs between two benchmarks besides the times."""
    return word_all(_differences(before, after))


def _differences(before: InputBenchmark, after: InputBenchmark) -> Iterator[Observation]:
    if not any(True for _ in _pairs(before, after)):
        yield Observation("configurations_differ", {"where": ""}, "nothing_common", "warning")
    settings = ("world_size", "samples", "sample_bytes", "batch_size", "threads")
    yield from find_other_settings(before, after, settings, "warning")
    yield from find_other_versions(before.versions, after.versions)


def _pairs(before: InputBenchmark, after: InputBenchmark) -> Iterator[Pair]:
    known = [(before.series[row.series], row) for row in before.measurements]
    for row in after.measurements:
        for series, old in known:
            if series == after.series[row.series] and old.cache == row.cache:
                yield Pair(old, row)
                break


def _change(pair: Pair, after: InputBenchmark, assumed: float | None) -> InputChange:
    times = [[one.load_ns for one in row.passes] for row in pair]
    found = change_of(times[0], times[1], (pair.before.load_ns, pair.after.load_ns), assumed)
    return InputChange(
        series=describe_input(after.series[pair.after.series]),
        cache=pair.after.cache,
        before_ns=pair.before.load_ns,
        after_ns=pair.after.load_ns,
        **found._asdict(),
    )


def _evaluate(gate: Gate, pairs: Sequence[Pair], after: InputBenchmark, assumed: float | None) -> GateResult:
    """Return the worst outcome over the series of the gate's source."""
    source, _, metric = gate.metric.partition(".")
    cache = "cold" if metric.startswith("cold_") else "warm"
    rows = [row for row in after.measurements if after.series[row.series].source == source and row.cache == cache]
    if metric not in METRICS or not rows:
        sources = dict.fromkeys(series.source for series in after.series)
        return unknown_metric(gate, [f"{name}.{metric}" for name in sources for metric in METRICS])
    name = metric.removeprefix("cold_")
    by_row = {id(pair.after): pair for pair in pairs}
    return evaluate(
        gate, _METRICS[name][0], [_quantity(name, row, by_row.get(id(row)), after, assumed) for row in rows]
    )


def _quantity(
    name: str, row: InputMeasurement, pair: Pair | None, after: InputBenchmark, assumed: float | None
) -> Quantity:
    time_of = _METRICS[name][1]
    significant, repeats = None, 0
    if pair is not None:
        times = [[time_of(one) for one in side.passes] for side in pair]
        middles = (_middle(name, pair.before), _middle(name, pair.after))
        significant = change_of(times[0], times[1], middles, assumed).significant
        repeats = min(map(len, times))
    return Quantity(
        what=f"{describe_input(after.series[row.series])}, {row.cache}",
        value=_value(name, row),
        before=None if pair is None else _value(name, pair.before),
        significant=significant,
        repeats=repeats,
    )


def _middle(name: str, row: InputMeasurement) -> float:
    return {"median": row.median_ns, "p99": row.p99_ns}.get(name, row.load_ns)


def _value(name: str, row: InputMeasurement) -> float:
    return row.loads_per_s if name == "rate" else _middle(name, row)
