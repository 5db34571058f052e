"""The tables of scaling series: efficiency, where it was lost, laws, forecasts; and all tables of several runs."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final, Literal, NamedTuple

from msgspec.structs import fields

from perfkit.base.formatting import MISSING, duration, escape_unprintable, figures, format_percent
from perfkit.records.per_run.ledger import LedgerCause
from perfkit.records.report import Report
from perfkit.records.scaling import (
    Estimate,
    Factors,
    FailedPoint,
    Fit,
    FitModel,
    LostEfficiency,
    MultiRunSummary,
    OptionComparison,
    ScalingPoint,
    ScalingSeries,
)
from perfkit.report.content.options import (
    estimated,
    estimates,
    interval_method,
    interval_note,
    option_tables,
    two_decimals,
    whole_rate,
)
from perfkit.report.wording.ledger import LABELS
from perfkit.subjects.scaling.shares import LEAST_POINTS
from perfkit.tables.labels import INDENT, LOW
from perfkit.tables.specification import Cell, Field, Listing, Table, data, make_table, number, words

PARTS: Final = {
    "load_balance": "balance",
    "host": "host",
    "input": "input",
    "serialisation": "serial.",
    "transfer": "transfer",
    "computation_scaling": "compute",
}
"""What global efficiency is the product of, with the title of its column."""
_MOST_COLUMNS: Final = 6
_LEAST_SHOWN: Final = 0.05
"""Points that a tenth is shown of."""
_HIERARCHY: Final[dict[str, Sequence[str]]] = {
    "global efficiency": tuple(PARTS),
    f"{INDENT}parallel efficiency": tuple(PARTS)[:-1],
    f"{2 * INDENT}load balance": ("load_balance",),
    f"{2 * INDENT}host / launch": ("host",),
    f"{2 * INDENT}input": ("input",),
    f"{2 * INDENT}dependency (serialisation)": ("serialisation",),
    f"{2 * INDENT}transfer": ("transfer",),
    f"{INDENT}computation scaling": ("computation_scaling",),
}
"""Rows of POP's hierarchy; each is the product of its factors."""
LAWS: Final[dict[FitModel, str]] = {"amdahl": "Amdahl", "gustafson": "Gustafson", "usl": "USL"}
_PARAMETERS: Final = {
    "serial_fraction": "serial fraction",
    "g": "g, samples/s of one rank",
    "s": "s, contention",
    "k": "k, coherence",
}


def scaling(multi_run: MultiRunSummary) -> list[Table]:
    """Return the tables of factors of each series, and those of options."""
    by_option: dict[str, list[OptionComparison]] = {}
    for comparison in multi_run.option_comparisons:
        by_option.setdefault(comparison.option, []).append(comparison)
    factors = [table for one in multi_run.series for table in (_hierarchy(one), _lost_factors(one)) if table]
    return [
        *factors,
        *(table for option, comparisons in by_option.items() for table in option_tables(option, comparisons)),
    ]


def opening(multi_run: MultiRunSummary) -> list[Table]:
    """Return what a report of series begins with: how each scales, then where points were lost."""
    tables = [*map(_points, multi_run.series), *map(_waterfall, multi_run.series)]
    return [table for table in tables if table]


def fits(multi_run: MultiRunSummary) -> list[Table]:
    """Return the laws and forecasts of each series."""
    tables = [table for one in multi_run.series for table in (_laws(one.fits, one.name), _forecasts(one))]
    return [table for table in tables if table]


def main_tables(multi_run: MultiRunSummary) -> list[Table]:
    """Return the table that answers first of each series and comparison, and the forecasts."""
    series = [table for one in multi_run.series for table in (_points(one), _forecasts(one)) if table]
    options = dict.fromkeys(comparison.option for comparison in multi_run.option_comparisons)
    return series + [
        option_tables(option, [one for one in multi_run.option_comparisons if one.option == option])[0]
        for option in options
    ]


class _Point(NamedTuple):
    """A world size of a series, which may have failed."""

    series: ScalingSeries
    of: ScalingPoint | None
    failed: FailedPoint | None = None


def _setup(key: str, of: object) -> Field:
    return data(key, of, lambda row: getattr(row.of, key))


_POINTS: Final = (
    data("series", str, lambda row: row.series.name),
    data("kind", str, lambda row: row.series.kind),
    data(
        "world_size",
        int,
        lambda row: row.of.world_size,
        number(
            "ranks",
            lambda row: (row.of or row.failed).world_size,
            tone=lambda row: "warning" if row.of and row.of.oversubscribed else "plain",
        ),
    ),
    _setup("nodes", int),
    _setup("batch_size", int),
    _setup("threads", int | None),
    _setup("oversubscribed", str | None),
    data(
        "repeats",
        int,
        lambda row: len(row.of.step_time.runs),
        number("n", lambda row: len(row.of.step_time.runs) if row.of else 1),
    ),
    data("measured_on", str, lambda row: row.of.step_time.measured_on),
    data("resampled", str | None, lambda row: row.of.step_time.resampled),
)


def _estimates(key: str, title: str, form: Callable[[float], str], low: float = 0) -> tuple[Field, ...]:
    return estimates(key, lambda row: getattr(row.of, key) if row.of else None, title, form, low)


def _of_step(key: str, title: str, form: Callable[[float], str]) -> tuple[Field, Field, Field]:
    """Return the columns of an estimate of the step time."""
    return estimates(key, lambda row: getattr(row.of.step_time, key) if row.of else None, title, form)


_STEP, *_STEP_ENDS = _of_step("step_ns", "", duration)
_TIMES: Final = (
    replace(_STEP, title="step", show=lambda row: _step(row)),
    *_STEP_ENDS,
    *_of_step("samples_per_s", "samples/s", whole_rate),
)
_SPEEDUP: Final = _estimates("speedup", "speedup", two_decimals)
_IDEAL: Final = number("ideal", lambda row: _ideal(row) if row.of else None)
_EFFICIENCY: Final = _estimates("efficiency", "efficiency", format_percent, LOW)
_SERIAL: Final = _estimates("karp_flatt", "serial", format_percent)


def _step(row: _Point) -> Cell:
    return estimated(row.of.step_time.step_ns, duration) if row.of else Cell("failed", tone="error")


def _ideal(row: _Point) -> Cell:
    least = row.series.points[0].world_size
    return Cell(figures(row.of.world_size / least) if row.of else MISSING, tone="faint")


def _points(series: ScalingSeries) -> Table | None:
    batch = f"batch {series.batch_size} " + ("over all ranks" if series.kind == "strong" else "per rank")
    failed = [f"{escape_unprintable(one.run)} failed: {escape_unprintable(one.reason)}" for one in series.failed]
    rows = [*(_Point(series, point) for point in series.points), *(_Point(series, None, one) for one in series.failed)]
    # Weak scaling has no serial fraction.
    columns = (*_POINTS, *_TIMES, *_SPEEDUP, _IDEAL, *_EFFICIENCY, *(() if series.kind == "weak" else _SERIAL))
    remark = _sentences([_intervals(series), *series.notes, *failed])
    return make_table(f"Scaling: {escape_unprintable(series.name)} ({batch})", rows, columns, remark)


def _intervals(series: ScalingSeries) -> str:
    where = "without the profiler" if series.points[0].step_time.measured_on == "plain" else "with the profiler"
    more = "; serial: Karp-Flatt serial fraction" if series.kind == "strong" else ""
    method = interval_method([point.step_time for point in series.points])
    return f"steps measured {where}; {method}; n: number of runs{more}"


def _three(value: float) -> str:
    return f"{value:#.3g}".rstrip(".")


def _hierarchy(series: ScalingSeries) -> Table | None:
    """Return POP's factors, one column per world size."""
    known = [(point.world_size, point.factors) for point in series.points if point.factors]
    if not known or len(known) > _MOST_COLUMNS:
        return None
    columns = (Field("factor", str, "words"), *(_factors(str(size), factors) for size, factors in known))
    remark = "one column per world size; each factor is the product of those indented below it"
    return make_table(f"Efficiency: {escape_unprintable(series.name)}", list(_HIERARCHY), columns, remark)


def _factors(title: str, factors: Factors) -> Field:
    def product(label: str) -> float:
        return float(math.prod(getattr(factors, key) for key in _HIERARCHY[label]))

    return number(title, product, format_percent, low=LOW)


class Lost(NamedTuple):
    """A row of the waterfall: what is left at a number of ranks, or a part of the step that points were lost to."""

    from_size: int
    to_size: int
    cause: LedgerCause | Literal["other"] | None
    """None: what is left at `to_size`."""
    before: float
    """Percent of efficiency that are left before it."""
    points: float
    """Percentage points of efficiency lost; negative: gained. Of what is left 0."""

    @property
    def after(self) -> float:
        """Percent that are left after it."""
        return self.before - self.points

    @property
    def label(self) -> str:
        """What points were lost to."""
        if self.cause is None:
            return ""
        return "other" if self.cause == "other" else LABELS[self.cause]


def lost_points(series: ScalingSeries) -> list[Lost]:
    """Return where points were lost from one number of ranks to the next; empty without the ledgers of all runs.

    What a part has lost against the smallest number of ranks (`ScalingPart.lost`) grows by what it loses in between.
    """
    if len(series.points) < 2 or not all(point.parts for point in series.points):
        return []
    first = series.points[0].world_size
    left = 100.0
    rows = [Lost(first, first, None, left, 0.0)]
    for before, after in pairwise(series.points):
        for cause, points in _lost_between(before, after):
            rows.append(Lost(before.world_size, after.world_size, cause, left, points))
            left -= points
        rows.append(Lost(before.world_size, after.world_size, None, left, 0.0))
    return rows


def _lost_between(before: ScalingPoint, after: ScalingPoint) -> Iterator[tuple[LedgerCause | Literal["other"], float]]:
    """Yield what each part loses, most first; those of less than a point together, last."""
    known = {part.cause: part.lost for part in before.parts}
    now = {part.cause: part.lost for part in after.parts}
    lost = {cause: now.get(cause, 0.0) - known.get(cause, 0.0) for cause in {**known, **now}}
    named = {cause: points for cause, points in lost.items() if abs(points) >= LEAST_POINTS}
    yield from sorted(named.items(), key=lambda item: -item[1])
    rest = sum(points for cause, points in lost.items() if cause not in named)
    if abs(rest) >= _LEAST_SHOWN:
        yield "other", rest


def _waterfall(series: ScalingSeries) -> Table | None:
    """Return the rows of the waterfall."""
    columns = (
        number("ranks", lambda row: f"{row.from_size} \u2192 {row.to_size}" if row.cause else row.to_size),
        words("lost to", lambda row: row.label),
        number("points", lambda row: Cell(f"{row.points:.1f}" if row.cause else "")),
        number("efficiency", lambda row: Cell("" if row.cause else f"{row.after:.1f} %", tone="strong")),
    )
    remark = "percent of the real step, as the rows of its ledger are longer than in the ideal one; negative: gained"
    return make_table(
        f"Where points were lost: {escape_unprintable(series.name)}", lost_points(series), columns, remark
    )


def _lost_factors(series: ScalingSeries) -> Table | None:
    """Return how much efficiency each step of the series lost, by factor."""
    factors = {point.world_size: point.factors for point in series.points}
    columns = (
        number("ranks", lambda row: f"{row.from_size} → {row.to_size}"),
        number("global efficiency", lambda row: _from_to(factors[row.from_size], factors[row.to_size])),
        number("lost", lambda row: Cell(f"{sum(tenths(_parts(row))) / 10:.1f}", tone="strong")),
        *(_part(index, title) for index, title in enumerate(PARTS.values())),
    )
    plain_steps = any(point.step_time.measured_on == "plain" for point in series.points)
    unlike = " (unlike the times above)" if plain_steps else ""
    remark = (
        f"percentage points of global efficiency, from steps with the profiler{unlike}; they add up; negative: gained; "
        "serial.: waiting on dependencies although no rank computes more overall; compute: more computation for the "
        "same work"
    )
    return make_table(f"Efficiency lost by factor: {escape_unprintable(series.name)}", series.lost, columns, remark)


def _parts(lost: LostEfficiency) -> list[float]:
    return [getattr(lost, key) for key in PARTS]


def _part(index: int, title: str) -> Field:
    """Return the column of a part of what was lost; the largest is highlighted."""

    def cell(row: LostEfficiency) -> Cell:
        parts = _parts(row)
        figure = tenths(parts)[index]
        return Cell(f"{figure / 10:.1f}", tone="warning" if parts[index] == max(parts) and figure > 0 else "plain")

    return number(title, cell)


def _from_to(before: Factors | None, after: Factors | None) -> str:
    if before is None or after is None:
        return MISSING
    return f"{100 * before.global_efficiency:.1f} → {100 * after.global_efficiency:.1f}"


def tenths(parts: Sequence[float]) -> list[int]:
    """Return parts as whole tenths that add up to their rounded sum: the largest remainders are rounded up."""
    floors = [int(10 * part // 1) for part in parts]
    left = round(10 * sum(parts)) - sum(floors)
    by_remainder = sorted(range(len(parts)), key=lambda i: floors[i] - 10 * parts[i])
    for i in by_remainder[:left]:
        floors[i] += 1
    return floors


def _laws(fits: Sequence[Fit], name: str) -> Table | None:
    """Return the parameters of the fitted laws, and why one has no fit."""
    columns = (
        words("law", lambda row: LAWS[row.fit.model]),
        words("parameter", _parameter),
        number("value", lambda row: row.estimate and _shown_as(row)(row.estimate.value)),
        number(
            "95 % interval", lambda row: row.estimate and (interval_note(row.estimate.interval, _shown_as(row)) or None)
        ),
    )
    peaks = [f"USL: throughput peaks at {fit.peak:.0f} ranks" for fit in fits if fit.peak]
    residuals = [
        f"{LAWS[fit.model]}: rms residual {format_percent(fit.residual)}" for fit in fits if fit.residual is not None
    ]
    reasons = (escape_unprintable(fit.reason) for fit in fits if fit.reason and fit.parameters)
    rows = [
        row
        for fit in fits
        for row in [_Parameter(fit, key, one) for key, one in fit.parameters.items()] or [_Parameter(fit, "", None)]
    ]
    return make_table(
        f"Scaling laws: {escape_unprintable(name)}", rows, columns, _sentences([*residuals, *peaks, *reasons])
    )


class _Parameter(NamedTuple):
    """A parameter of a law; without a fit there is one without a name."""

    fit: Fit
    key: str
    estimate: Estimate | None


def _parameter(row: _Parameter) -> str | Cell:
    if row.estimate:
        return _PARAMETERS[row.key]
    return Cell(f"no fit: {escape_unprintable(row.fit.reason or MISSING)}", tone="faint")


def _shown_as(row: _Parameter) -> Callable[[float], str]:
    return format_percent if row.key == "serial_fraction" else _three


def _forecasts(series: ScalingSeries) -> Table | None:
    """Return what larger world sizes would reach by the laws."""
    modelled = any(forecast.all_reduce_ns is not None for forecast in series.forecasts)
    columns = (
        number("ranks", lambda row: row.world_size),
        number("samples/s", lambda row: estimated(row.samples_per_s, whole_rate)),
        number("efficiency", lambda row: estimated(row.efficiency, format_percent, LOW)),
        *([number("all-reduces", lambda row: row.all_reduce_ns, duration)] if modelled else []),
        words("", lambda row: f"no forecast: {row.reason}" if row.reason else "", tone=lambda _: "faint"),
    )
    remarks = [
        "USL with its 95 % band; effects outside the law (another network, a saturated file system) are not included",
        *(["all-reduces: lower bound per step, from measured latency and bandwidth"] if modelled else []),
    ]
    title = f"Forecast: {escape_unprintable(series.name)}"
    return make_table(title, series.forecasts, columns, _sentences(remarks))


def _sentences(parts: Sequence[str]) -> str:
    return ".\n".join(parts)


def _all_points(report: Report) -> Iterator[_Point]:
    for series in report.multi_run.series if report.multi_run else ():
        yield from (_Point(series, point) for point in series.points)


def _factor(key: str) -> Field:
    return data(key, float | None, lambda row: getattr(row.of.factors, key, None))


LISTINGS: Final = {
    "points": Listing(
        _all_points,
        (
            *(*_POINTS, *_TIMES, *_SPEEDUP, *_EFFICIENCY, *_SERIAL),
            data("tokens_per_s", float | None, lambda row: row.of.step_time.tokens_per_s),
            *(_factor(field.name) for field in fields(Factors)),
        ),
    )
}
