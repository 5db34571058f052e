"""The roofline chart: how far operators are from what the device can do, and what limits them."""

from typing import Final

from perfkit.base.formatting import escape_unprintable, format_percent
from perfkit.records.per_rank.operator_work import MATRIX_KINDS, WORK_WORDS
from perfkit.records.roofline import DevicePeaks, Roofline, RooflineRow
from perfkit.records.run import RunReport
from perfkit.subjects.roofline.tables import element_type
from perfkit.tables.charts import Chart, RunChart, Spec, as_html, axis
from perfkit.tables.labels import HUES

_MOST_POINTS: Final = 200
_SMALLEST, _LARGEST = 6, 30
"""Diameters of points, whose area is in proportion to time."""


def roofline_chart(run: RunReport) -> Chart | None:
    """Return rate of operations against intensity, one point per operator and shapes; None without peaks."""
    roof = run.roofline
    if roof is None or roof.peaks is None or roof.peaks.bytes_per_s is None:
        return None
    known = [row for row in roof.rows if row.shapes and row.flops and row.bytes and row.total_ns]
    rows = known[:_MOST_POINTS]  # the longest come first
    if not rows:
        return None
    left = f" The {len(rows)} of {len(known)} that take longest." if len(rows) < len(known) else ""
    note = (
        f"{escape_unprintable(roof.peaks.name)}. Lines: bandwidth of the memory, and peaks of matrix products; area of "
        f"the points: time.{left}"
    )
    layout = {
        "xaxis": axis("operations per byte", type="log"),
        "yaxis": axis("FLOP/s", type="log", exponentformat="SI"),
    }
    return Chart("Roofline", note, {"data": [*_roofs(roof.peaks, rows), *_points(rows, roof)], "layout": layout})


def _roofs(peaks: DevicePeaks, rows: list[RooflineRow]) -> list[Spec]:
    """Return a line per type of matrix products that the run has, or one for the memory alone."""
    bandwidth = peaks.bytes_per_s or 0
    intensities = [row.intensity or 0 for row in rows]
    types = dict.fromkeys(element_type(row) for row in rows if row.kind in MATRIX_KINDS)
    ceilings = {name: peak for name in types if (peak := peaks.flops_per_s(name))}
    ridges = [peak / bandwidth for peak in ceilings.values()]
    low, high = min((*intensities, *ridges)) / 2, max((*intensities, *ridges)) * 2
    if not ceilings:
        return [_line("memory", [low, high], [low * bandwidth, high * bandwidth])]
    return [
        _line(name, [low, peak / bandwidth, high], [low * bandwidth, peak, peak]) for name, peak in ceilings.items()
    ]


def _line(name: str, x: list[float], y: list[float]) -> Spec:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"peak, {name}",
        "x": x,
        "y": y,
        "line": {"color": HUES[-1], "width": 2},
        "hovertemplate": f"%{{y:.4~s}}FLOP/s<extra>peak, {name}</extra>",
    }


def _points(rows: list[RooflineRow], roof: Roofline) -> list[Spec]:
    most = max(row.total_ns for row in rows)
    kinds = dict.fromkeys(row.kind for row in rows)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": WORK_WORDS[kind],
            "x": [row.intensity for row in rows if row.kind == kind],
            "y": [row.flops_per_s for row in rows if row.kind == kind],
            "text": [_label(row, roof) for row in rows if row.kind == kind],
            "hovertemplate": "%{text}<br>%{x:.3~g} FLOP/B: %{y:.4~s}FLOP/s<extra></extra>",
            "marker": {
                "color": HUES[place % len(HUES)],
                "symbol": place,
                "opacity": 0.7,
                "size": [max(_SMALLEST, _LARGEST * (row.total_ns / most) ** 0.5) for row in rows if row.kind == kind],
            },
        }
        for place, kind in enumerate(kinds)
    ]


def _label(row: RooflineRow, roof: Roofline) -> str:
    """Return what a point is, as HTML: plotly's texts are."""
    name = as_html(row.operator)
    share = "" if row.share is None else f", {format_percent(row.share)} of the {row.bound} bound"
    return (
        f"{name} {row.shapes}, {element_type(row)}<br>{format_percent(row.total_ns / roof.total_ns)} of compute{share}"
    )


CHARTS: Final[dict[str, RunChart]] = {
    "roofline": RunChart(
        roofline_chart, "a roofline needs traces recorded with record_shapes, and a device whose peaks are known"
    ),
}
