"""Compare a benchmark with an earlier one, and evaluate conditions, by the rules of `perfkit compare`.

::

    expression = OPERATOR.latency | OPERATOR.busbw, an operator, and a limit, as in `perfkit.comparison.gates`

`latency` is the time of the smallest message, `busbw` the bus bandwidth of the largest one, in GB/s. A condition holds
if it holds for any series of the operator. The intervals are over repeats; with fewer than three on a side a change
cannot be told from noise, and a condition on it cannot be evaluated.
"""

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from perfkit.comparison.gates import Gate
from perfkit.report.content.collectives.series import describe, rate
from perfkit.schema.benchmark.collectives import (
    BenchmarkComparison,
    CollectiveBenchmark,
    CollectiveChange,
    Measurement,
    Series,
)
from perfkit.schema.common import Finding
from perfkit.schema.comparison import GateResult, GateState
from perfkit.stats.bootstrap import FEWEST_RUNS, ratio_interval
from perfkit.util.formatting import duration

_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
METRICS: Final = ("latency", "busbw")
_TIMES: Final = frozenset({"ns", "us", "µs", "ms", "s"})


class Pair(NamedTuple):
    """The same measurement before and after."""

    series: Series
    before: Measurement
    after: Measurement
    change: CollectiveChange


class _Outcome(NamedTuple):
    state: GateState
    message: str


def compare_benchmarks(
    path: str,
    before: CollectiveBenchmark,
    after: CollectiveBenchmark,
    gates: Sequence[Gate],
    assumed_noise: float | None = None,
) -> BenchmarkComparison:
    """Return every measurement that both have, before and after, and the outcome of the conditions.

    Args:
        path: Of the earlier file.
        before: Its content.
        after: The new benchmark.
        gates: Conditions.
        assumed_noise: Relative change up to which a change counts as noise.
    """
    pairs = list(_pairs(before, after, assumed_noise))
    return BenchmarkComparison(
        path=path,
        assumed_noise=assumed_noise,
        changes=[pair.change for pair in pairs],
        gates=[_evaluate(gate, pairs, after) for gate in gates],
    )


def differences(before: CollectiveBenchmark, after: CollectiveBenchmark) -> Iterator[Finding]:
    """Yield what differs between two benchmarks besides the times."""
    if not any(True for _ in _pairs(before, after, None)):
        message = "the earlier file has none of these measurements: measure with the same options on as many ranks"
        yield Finding(code="configurations_differ", severity="warning", message=message)
    settings = ("world_size", "backend", "threads", "launcher")
    found = [
        f"{name} ({old} / {new})"
        for name, old, new in ((name, getattr(before, name), getattr(after, name)) for name in settings)
        if old != new
    ]
    if found:
        message = f"before and after differ in {', '.join(found)}"
        yield Finding(code="configurations_differ", severity="info", message=message)
    if before.device_names != after.device_names:
        names = " / ".join(", ".join(side.device_names) for side in (before, after))
        yield Finding(code="devices_differ", severity="warning", message=f"the devices differ: {names}")
    versions = [
        f"{name} ({old} / {after.versions[name]})"
        for name, old in before.versions.items()
        if after.versions.get(name, old) != old
    ]
    if versions:
        yield Finding(code="versions_differ", severity="info", message=f"versions differ: {', '.join(versions)}")


def _pairs(before: CollectiveBenchmark, after: CollectiveBenchmark, assumed: float | None) -> Iterator[Pair]:
    known = {(before.series[row.series], row.bytes): row for row in before.measurements}
    for row in after.measurements:
        series = after.series[row.series]
        old = known.get((series, row.bytes))
        if old is not None:
            yield Pair(series, old, row, _change(series, old, row, assumed))


def _change(series: Series, before: Measurement, after: Measurement, assumed: float | None) -> CollectiveChange:
    enough = min(len(before.samples_ns), len(after.samples_ns)) >= FEWEST_RUNS
    interval = ratio_interval(before.samples_ns, after.samples_ns) if enough else None
    ratio = after.time_ns / before.time_ns
    significant = None if interval is None else not interval[0] <= 1 <= interval[1]
    if assumed is not None:
        significant = significant is not False and abs(ratio - 1) > assumed
    return CollectiveChange(
        series=describe(series),
        bytes=after.bytes,
        before_ns=before.time_ns,
        after_ns=after.time_ns,
        ratio=ratio,
        interval=interval,
        significant=significant,
    )


def _evaluate(gate: Gate, pairs: Sequence[Pair], after: CollectiveBenchmark) -> GateResult:
    """Return the worst outcome over the series of the gate's operator."""
    name, _, metric = gate.metric.partition(".")
    measured = sorted({one.operator for one in after.series})
    if metric not in METRICS or name not in measured:
        metrics = ", ".join(f"{one}.{metric}" for one in measured for metric in METRICS)
        outcome = _Outcome("not_evaluated", f"no metric {gate.metric} in this benchmark; available: {metrics}")
    else:
        outcomes = [
            _outcome(gate, metric, one, number, pairs, after)
            for number, one in enumerate(after.series)
            if one.operator == name
        ]
        outcome = next(one for state in ("failed", "not_evaluated", "passed") for one in outcomes if one.state == state)
    return GateResult(expression=gate.expression, state=outcome.state, message=outcome.message)


def _outcome(
    gate: Gate, metric: str, series: Series, number: int, pairs: Sequence[Pair], after: CollectiveBenchmark
) -> _Outcome:
    rows = sorted((row for row in after.measurements if row.series == number), key=lambda row: row.bytes)
    row = rows[0] if metric == "latency" else rows[-1]
    if metric == "busbw" and row.busbw is None:
        return _Outcome("not_evaluated", f"{describe(series)} has no bandwidth")
    if not gate.relative:
        return _absolute(gate, metric, series, row)
    pair = next((pair for pair in pairs if pair.after is row), None)
    if pair is None:
        return _Outcome("not_evaluated", f"{describe(series)}, {row.bytes:,} B: not in the earlier file")
    return _relative(gate, metric, pair)


def _absolute(gate: Gate, metric: str, series: Series, row: Measurement) -> _Outcome:
    if metric == "latency" and gate.unit not in _TIMES:
        return _Outcome("not_evaluated", f"{gate.metric} needs a time (500us), or a relative change (+10%)")
    if metric == "busbw" and gate.unit:
        return _Outcome("not_evaluated", f"{gate.metric} needs a number of GB/s, or a relative change (-10%)")
    value = row.time_ns if metric == "latency" else (row.busbw or 0) / 1e9
    state: GateState = "failed" if _COMPARE[gate.operator](value, gate.limit) else "passed"
    return _Outcome(state, f"{_show(metric, row)} ({describe(series)}, {row.bytes:,} B)")


def _relative(gate: Gate, metric: str, pair: Pair) -> _Outcome:
    before, after = ((row.time_ns if metric == "latency" else row.busbw or 0.0) for row in (pair.before, pair.after))
    relative = (after - before) / before
    what = f"{describe(pair.series)}, {pair.after.bytes:,} B"
    values = f"{_show(metric, pair.before)} before, {_show(metric, pair.after)} after"
    measured = f"{100 * relative:+.1f} % ({values}; {what})"
    compare = _COMPARE[gate.operator]
    holds = compare(relative, gate.limit)
    if pair.change.significant is None:
        few = min(len(row.samples_ns) for row in (pair.before, pair.after))
        return _Outcome(
            "not_evaluated",
            f"{measured} cannot be told from noise with {few} repeat{'s' if few > 1 else ''}: use --repeats "
            f"{FEWEST_RUNS} or more, or state the noise (--assume-noise 3%)",
        )
    if holds != compare(0.0, gate.limit) and not pair.change.significant:
        return _Outcome("not_evaluated", f"{measured} is within the variation of the repeats or the assumed noise")
    return _Outcome("failed" if holds else "passed", measured)


def _show(metric: str, row: Measurement) -> str:
    return duration(row.time_ns) if metric == "latency" else rate(row.busbw)
