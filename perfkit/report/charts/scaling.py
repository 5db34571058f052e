"""The charts of a scaling series: throughput against ranks, and where efficiency was lost."""

from collections.abc import Sequence
from typing import Final

from perfkit.report.charts.specs import Chart, Line, signed_bars, throughput
from perfkit.report.content.scaling import PARTS
from perfkit.schema.scaling import Estimate, ScalingSeries
from perfkit.util.formatting import escape_unprintable

_LONG: Final = {
    "host": "host / launch",
    "serialisation": "dependency (serialisation)",
    "load_balance": "load balance",
    "computation_scaling": "computation",
}


def series_charts(series: Sequence[ScalingSeries]) -> list[Chart]:
    """Return the charts of every series."""
    charts = (chart for one in series for chart in (_throughput(one), _lost(one)))
    return [chart for chart in charts if chart]


def _throughput(series: ScalingSeries) -> Chart | None:
    measured = [
        (point.world_size, point.step_time.samples_per_s)
        for point in series.points
        if point.step_time.samples_per_s is not None
    ]
    if len(measured) < 2:
        return None
    least, base = measured[0]
    forecast = [(one.world_size, one.samples_per_s) for one in series.forecasts if one.samples_per_s is not None]
    sizes = [size for size, _ in (*measured, *forecast)]
    return throughput(
        f"Throughput against ranks: {escape_unprintable(series.name)}",
        _line("measured", measured),
        _line("forecast by the USL", forecast) if forecast else None,
        Line("ideal", [round(base.value * size / least, 3) for size in sizes], [], sizes),
        axis="ranks",
        unit="samples/s",
        note="With 95 % intervals; both axes are logarithmic.",
    )


def _line(name: str, points: Sequence[tuple[int, Estimate]]) -> Line:
    estimates = [estimate for _, estimate in points]
    intervals = [estimate.interval or (estimate.value, estimate.value) for estimate in estimates]
    return Line(name, [round(estimate.value, 3) for estimate in estimates], intervals, [size for size, _ in points])


def _lost(series: ScalingSeries) -> Chart | None:
    if not series.lost:
        return None
    return signed_bars(
        f"Efficiency lost between world sizes: {escape_unprintable(series.name)}",
        [f"{lost.from_size} \u2192 {lost.to_size}" for lost in series.lost],
        [(_LONG.get(part, part), [round(getattr(lost, part), 4) for lost in series.lost]) for part in PARTS],
        axis="ranks",
        unit="percentage points",
        note="Percentage points of global efficiency; below zero: gained.",
    )
