"""The tables of scaling series: efficiency, where it was lost, laws, forecasts; and all tables of several runs."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from perfkit.report.content.cross_rank import INDENT
from perfkit.report.content.document import Cell, Column, Table
from perfkit.report.content.several_runs.estimates import (
    estimated,
    interval_method,
    interval_note,
    two_decimals,
    whole_rate,
)
from perfkit.report.content.several_runs.options import option_tables
from perfkit.schema.scaling import (
    Factors,
    FailedPoint,
    Fit,
    FitModel,
    Forecast,
    LostEfficiency,
    MultiRunSummary,
    OptionComparison,
    ScalingPoint,
    ScalingSeries,
)
from perfkit.util.formatting import MISSING, duration, escape_unprintable, figures, format_percent

_LOW: Final = 0.8
"""An efficiency below it is highlighted (metrics.md section 6)."""
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
    """Return all tables, series first."""
    by_option: dict[str, list[OptionComparison]] = {}
    for comparison in multi_run.option_comparisons:
        by_option.setdefault(comparison.option, []).append(comparison)
    series = [table for one in multi_run.series for table in _series(one)]
    return [
        *series,
        *(table for option, comparisons in by_option.items() for table in option_tables(option, comparisons)),
    ]


def main_tables(multi_run: MultiRunSummary) -> list[Table]:
    """Return the table that answers first of each series and comparison, and the forecasts."""
    series = [table for one in multi_run.series for table in (_points(one), _forecasts(one)) if table]
    options = dict.fromkeys(comparison.option for comparison in multi_run.option_comparisons)
    return series + [
        option_tables(option, [one for one in multi_run.option_comparisons if one.option == option])[0]
        for option in options
    ]


def _series(series: ScalingSeries) -> list[Table]:
    tables = [
        _points(series),
        _hierarchy(series),
        _lost(series),
        _laws(series.fits, series.name),
        _forecasts(series),
    ]
    return [table for table in tables if table is not None]


def _points(series: ScalingSeries) -> Table:
    batch = f"batch {series.batch_size} " + ("over all ranks" if series.kind == "strong" else "per rank")
    remarks = [
        *series.notes,
        *(f"{escape_unprintable(one.run)} failed: {escape_unprintable(one.reason)}" for one in series.failed),
    ]
    least = series.points[0].world_size
    rows = [*(_point_row(point, least) for point in series.points), *map(_failed_row, series.failed)]
    return Table(
        f"Scaling: {escape_unprintable(series.name)} ({batch})",
        (
            Column("ranks"),
            Column("n"),
            Column("step"),
            Column("samples/s"),
            Column("speedup"),
            Column("ideal"),
            Column("efficiency"),
            *([Column("serial")] if _serial(series) else []),
        ),
        [(*row, *cells) for row, cells in zip(rows, _serial(series) or [()] * len(rows), strict=True)],
        _sentences([_intervals(series), *remarks]),
    )


def _serial(series: ScalingSeries) -> list[tuple[Cell, ...]]:
    """Return the cells of the Karp-Flatt serial fraction; none for weak scaling."""
    if series.kind == "weak":
        return []
    cells: list[tuple[Cell, ...]] = [(estimated(point.karp_flatt, format_percent),) for point in series.points]
    return cells + [(Cell(MISSING),)] * len(series.failed)


def _intervals(series: ScalingSeries) -> str:
    where = "without the profiler" if series.points[0].step_time.measured_on == "plain" else "with the profiler"
    more = "; serial: Karp-Flatt serial fraction" if series.kind == "strong" else ""
    method = interval_method([point.step_time for point in series.points])
    return f"steps measured {where}; {method}; n: number of runs{more}"


def _point_row(point: ScalingPoint, least: int) -> tuple[Cell, ...]:
    return (
        Cell(str(point.world_size), tone="warning" if point.oversubscribed else "plain"),
        Cell(str(len(point.step_time.runs))),
        estimated(point.step_time.step_ns, duration),
        estimated(point.step_time.samples_per_s, whole_rate),
        estimated(point.speedup, two_decimals),
        Cell(figures(point.world_size / least), tone="faint"),
        estimated(point.efficiency, format_percent, low=_LOW),
    )


def _failed_row(failed: FailedPoint) -> tuple[Cell, ...]:
    return (Cell(str(failed.world_size)), Cell("1"), Cell("failed", tone="error"), *[Cell(MISSING)] * 4)


def _three(value: float) -> str:
    return f"{value:#.3g}".rstrip(".")


def _hierarchy(series: ScalingSeries) -> Table | None:
    """Return POP's factors, one column per world size."""
    known = [(point.world_size, point.factors) for point in series.points if point.factors]
    if not known or len(known) > _MOST_COLUMNS:
        return None
    rows = [(Cell(label), *(_factor(factors, names) for _, factors in known)) for label, names in _HIERARCHY.items()]
    columns = (Column("factor", "words"), *(Column(str(number)) for number, _ in known))
    remark = "one column per world size; each factor is the product of those indented below it"
    return Table(f"Efficiency: {escape_unprintable(series.name)}", columns, rows, remark)


def _factor(factors: Factors, names: Sequence[str]) -> Cell:
    value = math.prod(getattr(factors, name) for name in names)
    return Cell(format_percent(value), tone="warning" if value < _LOW else "plain")


def _lost(series: ScalingSeries) -> Table | None:
    if not series.lost:
        return None
    rows = [_lost_row(lost, series.points) for lost in series.lost]
    columns = (
        Column("ranks"),
        Column("global efficiency"),
        Column("lost"),
        *(Column(title) for title in PARTS.values()),
    )
    plain_steps = any(point.step_time.measured_on == "plain" for point in series.points)
    unlike = " (unlike the times above)" if plain_steps else ""
    remark = (
        f"percentage points of global efficiency, from steps with the profiler{unlike}; they add up; negative: gained; "
        "serial.: waiting on dependencies although no rank computes more overall; compute: more computation for the "
        "same work"
    )
    return Table(f"Where efficiency was lost: {escape_unprintable(series.name)}", columns, rows, remark)


def _lost_row(lost: LostEfficiency, points: Sequence[ScalingPoint]) -> tuple[Cell, ...]:
    factors = {point.world_size: point.factors for point in points}
    before, after = (factors[number] for number in (lost.from_size, lost.to_size))
    parts = [getattr(lost, name) for name in PARTS]
    worst = max(parts)
    shown = tenths(parts)
    return (
        Cell(f"{lost.from_size} → {lost.to_size}"),
        Cell(_from_to(before, after)),
        Cell(f"{sum(shown) / 10:.1f}", tone="strong"),
        *(
            Cell(f"{figure / 10:.1f}", tone="warning" if part == worst and figure > 0 else "plain")
            for part, figure in zip(parts, shown, strict=True)
        ),
    )


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
    rows = [row for fit in fits for row in _fit_rows(fit)]
    columns = (Column("law", "words"), Column("parameter", "words"), Column("value"), Column("95 % interval"))
    peaks = [f"USL: throughput peaks at {fit.peak:.0f} ranks" for fit in fits if fit.peak]
    residuals = [
        f"{LAWS[fit.model]}: rms residual {format_percent(fit.residual)}" for fit in fits if fit.residual is not None
    ]
    remark = _sentences(
        [*residuals, *peaks, *(escape_unprintable(fit.reason) for fit in fits if fit.reason and fit.parameters)]
    )
    return Table(f"Scaling laws: {escape_unprintable(name)}", columns, rows, remark) if rows else None


_SHOWN: Final[dict[str, Callable[[float], str]]] = {"serial_fraction": format_percent}


def _fit_rows(fit: Fit) -> list[tuple[Cell, ...]]:
    law = Cell(LAWS[fit.model])
    if not fit.parameters:
        return [
            (
                law,
                Cell(f"no fit: {escape_unprintable(fit.reason or MISSING)}", tone="faint"),
                Cell(MISSING),
                Cell(MISSING),
            )
        ]
    return [
        (
            law,
            Cell(_PARAMETERS[name]),
            Cell(_SHOWN.get(name, _three)(estimate.value)),
            Cell(interval_note(estimate.interval, _SHOWN.get(name, _three)) or MISSING),
        )
        for name, estimate in fit.parameters.items()
    ]


def _forecasts(series: ScalingSeries) -> Table | None:
    if not series.forecasts:
        return None
    modelled = any(forecast.all_reduce_ns is not None for forecast in series.forecasts)
    columns = (
        Column("ranks"),
        Column("samples/s"),
        Column("efficiency"),
        *((Column("all-reduces"),) if modelled else ()),
        Column("", "words"),
    )
    remarks = [
        "USL with its 95 % band; effects outside the law (another network, a saturated file system) are not included",
        *(["all-reduces: lower bound per step, from measured latency and bandwidth"] if modelled else []),
    ]
    rows = [_forecast_row(forecast, modelled) for forecast in series.forecasts]
    return Table(f"Forecast: {escape_unprintable(series.name)}", columns, rows, _sentences(remarks))


def _forecast_row(forecast: Forecast, modelled: bool) -> tuple[Cell, ...]:
    return (
        Cell(str(forecast.world_size)),
        estimated(forecast.samples_per_s, whole_rate),
        estimated(forecast.efficiency, format_percent, low=_LOW),
        *((Cell(duration(forecast.all_reduce_ns)),) if modelled else ()),
        Cell(f"no forecast: {escape_unprintable(forecast.reason)}" if forecast.reason else "", tone="faint"),
    )


def _sentences(parts: Sequence[str]) -> str:
    return ".\n".join(parts)
