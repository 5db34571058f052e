"""The tables of what several runs tell together: series, where efficiency was lost, laws, options side by side."""

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
"""An efficiency below it is called out (metrics.md section 6)."""
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
    f"{2 * INDENT}host": ("host",),
    f"{2 * INDENT}input": ("input",),
    f"{2 * INDENT}serialisation": ("serialisation",),
    f"{2 * INDENT}transfer": ("transfer",),
    f"{INDENT}computation scaling": ("computation_scaling",),
}
"""Rows of POP's hierarchy, and the factors that each is the product of."""
LAWS: Final[dict[FitModel, str]] = {"amdahl": "Amdahl", "gustafson": "Gustafson", "usl": "USL"}
_PARAMETERS: Final = {
    "serial_fraction": "serial fraction",
    "g": "g, samples/s of one rank",
    "s": "s, contention",
    "k": "k, coherence",
}


def scaling(found: MultiRunSummary) -> list[Table]:
    """Return all tables, series first."""
    by_option: dict[str, list[OptionComparison]] = {}
    for axis in found.option_comparisons:
        by_option.setdefault(axis.option, []).append(axis)
    series = [table for one in found.series for table in _series(one)]
    return [*series, *(table for option, axes in by_option.items() for table in _axes(option, axes))]


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
    batch = f"batch {series.batch_size} " + ("of all ranks" if series.kind == "strong" else "a rank")
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
    """Return the cells of Karp and Flatt's serial fraction; none for weak scaling."""
    if series.kind == "weak":
        return []
    cells: list[tuple[Cell, ...]] = [(estimated(point.karp_flatt, format_percent),) for point in series.points]
    return cells + [(Cell(MISSING),)] * len(series.failed)


def _intervals(series: ScalingSeries) -> str:
    where = "without the profiler" if series.points[0].step_time.measured_on == "plain" else "while recorded"
    more = "; serial: the serial fraction by Karp and Flatt" if series.kind == "strong" else ""
    drawn = _drawn([point.step_time for point in series.points])
    return f"times are of steps {where}; below or beside a figure its 95 % interval, {drawn}; n: repeats{more}"


def _drawn(figures: Sequence[StepTimeEstimate]) -> str:
    """Say what intervals were drawn from."""
    kinds = {figure.resampled for figure in figures}
    if kinds == {"runs"}:
        return "bootstrap over runs"
    if "runs" in kinds:
        return "bootstrap over runs where there are three repeats, else over steps"
    return "bootstrap over steps" if "steps" in kinds else "where there are steps enough"


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


def estimated(found: Estimate | None, show: Callable[[float], str], low: float | None = None) -> Cell:
    """Return a figure with its interval as the note; below `low` it is called out."""
    if found is None:
        return Cell(MISSING)
    called_out = low is not None and found.value < low
    return Cell(show(found.value), _band(found.interval, show), "warning" if called_out else "plain")


def _band(interval: tuple[float, float] | None, show: Callable[[float], str]) -> str:
    """Return an interval with its unit once, where both ends have the same."""
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
    """Return a rate with all its digits where they are few, else with three and a prefix."""
    return rate(per_second, "").removesuffix(" /s") if per_second < _MANY else size(per_second).removesuffix("B")


def _hierarchy(series: ScalingSeries) -> Table | None:
    """Return the factors as POP has them, a column a world size."""
    known = [(point.world_size, point.factors) for point in series.points if point.factors]
    if not known or len(known) > _MOST_COLUMNS:
        return None
    rows = [(Cell(label), *(_factor(factors, names) for _, factors in known)) for label, names in _HIERARCHY.items()]
    columns = (Column("factor", "words"), *(Column(str(number)) for number, _ in known))
    remark = "a column a world size; a factor is the product of those indented below it"
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
    unlike = ", unlike the times above" if plain_steps else ""
    remark = (
        f"points of global efficiency of the recorded steps{unlike}, which add up; negative: gained; compute: the same "
        "work takes more computation; serial.: waiting although no rank computes more over all"
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
    peaks = [f"by the USL throughput is largest at {fit.peak:.0f} ranks" for fit in fits if fit.peak]
    missed = [
        f"{LAWS[fit.model]} misses a run by {format_percent(fit.residual)} (rms)"
        for fit in fits
        if fit.residual is not None
    ]
    remark = _sentences([*missed, *peaks, *(fit.reason for fit in fits if fit.reason and fit.parameters)])
    return Table(f"Laws of scaling: {escape_unprintable(name)}", columns, rows, remark) if rows else None


_SHOWN: Final[dict[str, Callable[[float], str]]] = {"serial_fraction": format_percent}


def _fit_rows(fit: Fit) -> list[tuple[Cell, ...]]:
    law = Cell(LAWS[fit.model])
    if not fit.parameters:
        return [(law, Cell(f"no fit: {fit.reason}", tone="faint"), Cell(MISSING), Cell(MISSING))]
    return [
        (
            law,
            Cell(_PARAMETERS[name]),
            Cell(_SHOWN.get(name, _three)(found.value)),
            Cell(_band(found.interval, _SHOWN.get(name, _three)) or MISSING),
        )
        for name, found in fit.parameters.items()
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
        "by the USL, with its 95 % band; what the law leaves out (another network, a full file system) is not in it",
        *(["all-reduces: a step's, at least, by their latency and bandwidth as measured"] if modelled else []),
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


# ---- options side by side ------------------------------------------------------------------------------------------


def _axes(option: str, axes: Sequence[OptionComparison]) -> list[Table]:
    rows = [(axis, row) for axis in axes for row in axis.rows]
    names = {axis.name for axis in axes}
    alike = f" ({escape_unprintable(names.pop())})" if len(names) == 1 else ""
    shared = (
        *(() if alike else (Column("runs", "words"),)),
        Column("ranks"),
        Column(escape_unprintable(option), "words"),
    )
    steps = Table(
        f"By {escape_unprintable(option)}: runs that differ in nothing else{alike}",
        (
            *shared,
            Column("n"),
            Column("step"),
            Column("samples/s"),
            Column("efficiency"),
            Column("× first"),
        ),
        [(*_shared(axis, row, bool(alike)), *_axis_row(row)) for axis, row in rows],
        "× first: step time against the first row's; below or beside a figure its 95 % interval, "
        + _drawn([row.step_time for _, row in rows]),
    )
    if not is_input_option(option) or all(row.load_median_ns is None for _, row in rows):
        return [steps]
    loads = [(*_shared(axis, row, bool(alike)), *_loads_row(row)) for axis, row in rows]
    rates = [(*_shared(axis, row, bool(alike)), *_rates_row(row)) for axis, row in rows]
    read = any(row.read_bytes_per_s is not None or row.file_bytes_per_s is not None for _, row in rows)
    return [
        steps,
        _loads(f"By {escape_unprintable(option)}: the input{alike}", shared, loads),
        *([_rates(f"By {escape_unprintable(option)}: bytes a second{alike}", shared, rates)] if read else []),
    ]


def _shared(axis: OptionComparison, row: OptionRow, alike: bool) -> tuple[Cell, ...]:
    name = () if alike else (Cell(escape_unprintable(axis.name)),)
    return *name, Cell(str(axis.world_size)), Cell(escape_unprintable(row.value))


def _axis_row(row: OptionRow) -> tuple[Cell, ...]:
    return (
        Cell(str(len(row.step_time.runs))),
        estimated(row.step_time.step_ns, duration),
        estimated(row.step_time.samples_per_s, _whole),
        Cell(format_percent(row.efficiency)),
        estimated(row.ratio, _two) if row.ratio else Cell("1"),
    )


def _loads(title: str, shared: tuple[Column, ...], rows: Sequence[tuple[Cell, ...]]) -> Table:
    own = ("median load", "largest", "of the step", "× memory")
    remark = "of the step: what nothing hides; × memory: median load against that from memory"
    return Table(title, (*shared, *map(Column, own)), rows, remark)


def _loads_row(row: OptionRow) -> tuple[Cell, ...]:
    return (
        Cell(duration(row.load_median_ns)),
        Cell(duration(row.load_max_ns)),
        Cell(format_percent(row.exposed_share)),
        Cell(MISSING if row.load_ratio is None else f"{row.load_ratio:.2f}"),
    )


def _rates(title: str, shared: tuple[Column, ...], rows: Sequence[tuple[Cell, ...]]) -> Table:
    own = ("read", "of memory", "file alone", "in cache", "of file")
    remark = (
        "read: samples of all ranks while they wait for them; file alone: plain sequential reads by one process after "
        "the run; in cache: how much of that the run had left in the page cache; of file: a rank's rate against it"
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
