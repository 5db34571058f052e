"""The tables of several runs: scaling series, lost efficiency, scaling laws, forecasts, and comparisons by option."""

import math
from collections.abc import Callable, Sequence
from typing import Final

from perfkit.report.content.cross_rank import INDENT
from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.config_identity import is_input_option
from perfkit.schema.scaling import (
    Estimate,
    Factors,
    FailedPoint,
    Fit,
    FitModel,
    Forecast,
    LostEfficiency,
    MultiRunSummary,
    OptionComparison,
    OptionRow,
    ScalingPoint,
    ScalingSeries,
    StepTimeEstimate,
)
from perfkit.util.formatting import MISSING, duration, escape_unprintable, format_percent, rate, size

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
_MANY: Final = 99_999.5
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
        *(table for option, comparisons in by_option.items() for table in _option_tables(option, comparisons)),
    ]


def main_tables(multi_run: MultiRunSummary) -> list[Table]:
    """Return the table that answers first of each series and comparison, and the forecasts."""
    series = [table for one in multi_run.series for table in (_points(one), _forecasts(one)) if table]
    options = dict.fromkeys(comparison.option for comparison in multi_run.option_comparisons)
    return series + [
        _option_tables(option, [one for one in multi_run.option_comparisons if one.option == option])[0]
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
    method = _interval_method([point.step_time for point in series.points])
    return f"steps measured {where}; {method}; n: number of runs{more}"


def _profiled(times: Sequence[StepTimeEstimate]) -> str:
    """Return which steps were measured: tables of single runs show the recorded ones."""
    return "without the profiler" if all(time.measured_on == "plain" for time in times) else "with the profiler"


def _interval_method(figures: Sequence[StepTimeEstimate]) -> str:
    """Return what the range beside a figure is: over the steps of single runs it is no interval for other runs."""
    kinds = {figure.resampled for figure in figures}
    if kinds == {"runs"}:
        return "intervals: 95 %, bootstrap over runs"
    if "runs" in kinds:
        return (
            "ranges: 95 % intervals over runs where all n are three or more, else only the spread over steps, which "
            "does not show how runs differ"
        )
    if "steps" in kinds:
        return "ranges: only the spread over the steps of these runs, which does not show how runs differ"
    return "too few runs and steps for intervals"


def _point_row(point: ScalingPoint, least: int) -> tuple[Cell, ...]:
    return (
        Cell(str(point.world_size), tone="warning" if point.oversubscribed else "plain"),
        Cell(str(len(point.step_time.runs))),
        estimated(point.step_time.step_ns, duration),
        estimated(point.step_time.samples_per_s, _whole),
        estimated(point.speedup, _two),
        Cell(f"{point.world_size / least:.3g}", tone="faint"),
        estimated(point.efficiency, format_percent, low=_LOW),
    )


def _failed_row(failed: FailedPoint) -> tuple[Cell, ...]:
    return (Cell(str(failed.world_size)), Cell("1"), Cell("failed", tone="error"), *[Cell(MISSING)] * 4)


def estimated(estimate: Estimate | None, show: Callable[[float], str], low: float | None = None) -> Cell:
    """Return a figure with its interval as the note, highlighted if below `low`."""
    if estimate is None:
        return Cell(MISSING)
    is_low = low is not None and estimate.value < low
    return Cell(show(estimate.value), _band(estimate.interval, show), "warning" if is_low else "plain")


def _band(interval: tuple[float, float] | None, show: Callable[[float], str]) -> str:
    """Return an interval, with the unit once if both ends have the same."""
    if interval is None or interval[0] == interval[1]:
        return ""
    first, last = (show(end) for end in interval)
    figure, _, unit = first.partition(" ")
    return f"{figure if unit == last.partition(' ')[2] else first}–{last}"


def _two(value: float) -> str:
    return f"{value:.3g}" if abs(value) >= 100 else f"{value:.2f}"


def _three(value: float) -> str:
    return f"{value:#.3g}".rstrip(".")


def _whole(per_second: float) -> str:
    """Return a small rate with all its digits, a large one with three and a prefix."""
    return rate(per_second, "").removesuffix(" /s") if per_second < _MANY else size(per_second).removesuffix("B")


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
    remark = _sentences([*residuals, *peaks, *(fit.reason for fit in fits if fit.reason and fit.parameters)])
    return Table(f"Scaling laws: {escape_unprintable(name)}", columns, rows, remark) if rows else None


_SHOWN: Final[dict[str, Callable[[float], str]]] = {"serial_fraction": format_percent}


def _fit_rows(fit: Fit) -> list[tuple[Cell, ...]]:
    law = Cell(LAWS[fit.model])
    if not fit.parameters:
        return [(law, Cell(f"no fit: {fit.reason}", tone="faint"), Cell(MISSING), Cell(MISSING))]
    return [
        (
            law,
            Cell(_PARAMETERS[name]),
            Cell(_SHOWN.get(name, _three)(estimate.value)),
            Cell(_band(estimate.interval, _SHOWN.get(name, _three)) or MISSING),
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
        estimated(forecast.samples_per_s, _whole),
        estimated(forecast.efficiency, format_percent, low=_LOW),
        *((Cell(duration(forecast.all_reduce_ns)),) if modelled else ()),
        Cell(f"no forecast: {forecast.reason}" if forecast.reason else "", tone="faint"),
    )


# ---- runs compared by option -----------------------------------------------------------------------------------------


def _samples_differ(comparisons: Sequence[OptionComparison]) -> str:
    """Return a remark if compared steps have different numbers of samples, so that their times are not comparable."""
    each = ({row.step_time.samples_per_step for row in comparison.rows} for comparison in comparisons)
    return "; steps have different numbers of samples: compare samples/s" if any(len(one) > 1 for one in each) else ""


def _option_tables(option: str, comparisons: Sequence[OptionComparison]) -> list[Table]:
    rows = [(comparison, row) for comparison in comparisons for row in comparison.rows]
    names = {comparison.name for comparison in comparisons}
    alike = f" ({escape_unprintable(names.pop())})" if len(names) == 1 else ""
    shared = (
        *(() if alike else (Column("runs", "words"),)),
        Column("ranks"),
        Column(escape_unprintable(option), "words"),
    )
    steps = Table(
        f"By {escape_unprintable(option)}: otherwise identical runs{alike}",
        (
            *shared,
            Column("n"),
            Column("step"),
            Column("samples/s"),
            Column("efficiency"),
            Column("vs. baseline"),
        ),
        [(*_shared(comparison, row, bool(alike)), *_option_row(row)) for comparison, row in rows],
        f"step: {_profiled([row.step_time for _, row in rows])}; vs. baseline: step time relative to the first row; "
        f"{_interval_method([row.step_time for _, row in rows])}{_samples_differ(comparisons)}",
    )
    if not is_input_option(option) or all(row.load_median_ns is None for _, row in rows):
        return [steps]
    loads = [(*_shared(comparison, row, bool(alike)), *_loads_row(row)) for comparison, row in rows]
    rates = [(*_shared(comparison, row, bool(alike)), *_rates_row(row)) for comparison, row in rows]
    read = any(row.read_bytes_per_s is not None or row.file_bytes_per_s is not None for _, row in rows)
    return [
        steps,
        _loads(f"By {escape_unprintable(option)}: input{alike}", shared, loads),
        *([_rates(f"By {escape_unprintable(option)}: read bandwidth{alike}", shared, rates)] if read else []),
    ]


def _shared(comparison: OptionComparison, row: OptionRow, alike: bool) -> tuple[Cell, ...]:
    name = () if alike else (Cell(escape_unprintable(comparison.name)),)
    return *name, Cell(str(comparison.world_size)), Cell(escape_unprintable(row.value))


def _option_row(row: OptionRow) -> tuple[Cell, ...]:
    return (
        Cell(str(len(row.step_time.runs))),
        estimated(row.step_time.step_ns, duration),
        estimated(row.step_time.samples_per_s, _whole),
        Cell(format_percent(row.efficiency)),
        estimated(row.ratio, _two) if row.ratio else Cell("1"),
    )


def _loads(title: str, shared: tuple[Column, ...], rows: Sequence[tuple[Cell, ...]]) -> Table:
    own = ("median load", "largest", "% of step", "vs. memory")
    remark = "% of step: exposed; vs. memory: median load relative to loads from memory"
    return Table(title, (*shared, *map(Column, own)), rows, remark)


def _loads_row(row: OptionRow) -> tuple[Cell, ...]:
    return (
        Cell(duration(row.load_median_ns)),
        Cell(duration(row.load_max_ns)),
        Cell(format_percent(row.exposed_share)),
        Cell(MISSING if row.load_ratio is None else f"{row.load_ratio:.2f}"),
    )


def _rates(title: str, shared: tuple[Column, ...], rows: Sequence[tuple[Cell, ...]]) -> Table:
    own = ("read", "% of in-memory", "file bandwidth", "in cache", "% of file")
    remark = (
        "read: all ranks together, while waiting for samples; % of in-memory: relative to reading from memory; file "
        "bandwidth: sequential reads by one process after the run; in cache: share of the file in the page cache then; "
        "% of file: per-rank rate relative to the file bandwidth"
    )
    return Table(title, (*shared, *map(Column, own)), rows, remark)


def _rates_row(row: OptionRow) -> tuple[Cell, ...]:
    return (
        Cell(rate(row.read_bytes_per_s, "B")),
        Cell(format_percent(row.memory_share)),
        Cell(rate(row.file_bytes_per_s, "B")),
        Cell(format_percent(row.file_cached_share)),
        Cell(format_percent(row.file_share)),
    )


def _sentences(parts: Sequence[str]) -> str:
    return ".\n".join(parts)
