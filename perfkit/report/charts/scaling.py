"""The data of the charts of series: throughput against ranks, and where efficiency was lost."""

from collections.abc import Sequence
from typing import Any, Final

from perfkit.report.content.scaling import PARTS
from perfkit.schema.scaling import Estimate, ScalingSeries
from perfkit.util.formatting import escape_unprintable

_LONG: Final = {"serialisation": "serialisation", "load_balance": "load balance", "computation_scaling": "computation"}


def series_figures(several: Sequence[ScalingSeries]) -> list[dict[str, Any]]:
    """Return the charts of every series."""
    charts = (chart for series in several for chart in (_throughput(series), _lost(series)))
    return [chart for chart in charts if chart]


def _throughput(series: ScalingSeries) -> dict[str, Any] | None:
    known = [
        (point.world_size, point.step_time.samples_per_s)
        for point in series.points
        if point.step_time.samples_per_s is not None
    ]
    if len(known) < 2:
        return None
    least, base = known[0]
    forecast = [(one.world_size, one.samples_per_s) for one in series.forecasts if one.samples_per_s is not None]
    sizes = [size for size, _ in (*known, *forecast)]
    lines = [_line("measured", known), _line("forecast by the USL", forecast)]
    return {
        "kind": "lines",
        "title": f"Throughput against ranks: {escape_unprintable(series.name)}",
        "note": "with 95 % intervals; both axes are logarithmic",
        "axis": "ranks",
        "unit": "samples/s",
        "ideal": {"x": sizes, "y": [round(base.value * size / least, 3) for size in sizes]},
        "lines": [line for line in lines if line["x"]],
    }


def _line(name: str, points: Sequence[tuple[int, Estimate]]) -> dict[str, Any]:
    ends = [(found.value, *(found.interval or (found.value, found.value))) for _, found in points]
    return {
        "name": name,
        "x": [size for size, _ in points],
        "y": [round(value, 3) for value, _, _ in ends],
        "up": [round(high - value, 3) for value, _, high in ends],
        "down": [round(value - low, 3) for value, low, _ in ends],
    }


def _lost(series: ScalingSeries) -> dict[str, Any] | None:
    if not series.lost:
        return None
    return {
        "kind": "bars",
        "title": f"Efficiency lost between world sizes: {escape_unprintable(series.name)}",
        "note": "points of global efficiency; below zero: gained",
        "axis": "ranks",
        "unit": "points",
        "x": [f"{lost.from_size} \u2192 {lost.to_size}" for lost in series.lost],
        "series": [
            {"name": _LONG.get(part, part), "y": [round(getattr(lost, part), 4) for lost in series.lost]}
            for part in PARTS
        ],
    }
