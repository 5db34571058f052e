"""The chart of a plan: which layouts fit, and how fast they are."""

from collections.abc import Sequence
from typing import Final

from perfkit.base.formatting import duration, escape_unprintable, size
from perfkit.records.plan import Plan, PlannedLayout
from perfkit.report.charts.log_ticks import size_ticks, time_ticks
from perfkit.tables.charts import Chart, PageCharts, Spec, axis
from perfkit.tables.labels import HUES

_MARKED: Final = 16
"""Diameter of the best layout's point; that of others is half."""
_GROUPS: Final = (
    *("data parallel", "tensor parallel", "pipeline", "pipeline and tensor parallel"),
    *("context parallel", "expert parallel"),
)
_COLOURS: Final = (*HUES[:-1], HUES[1])
"""By group: of experts, which tensor parallelism does not divide, that of tensor parallelism."""


def page_charts(plan: Plan) -> PageCharts:
    """Return the charts of the page."""
    chart = memory_and_time(plan)
    return PageCharts([], [[chart] if chart else []])


def memory_and_time(plan: Plan) -> Chart | None:
    """Return the time of a step against the memory that it needs, one point per layout; None without times."""
    timed = [one for one in plan.layouts if one.step is not None]
    if not timed:
        return None
    best = None if plan.best is None else plan.layouts[plan.best]
    limit = plan.device.memory_bytes if plan.device else None
    steps = [_step_ns(one) for one in timed]
    needs = [one.memory.needed_bytes for one in timed] + ([limit] if limit else [])
    layout: Spec = {
        "xaxis": axis("memory needed per device", type="log", **size_ticks(needs)),
        "yaxis": axis("time per step", type="log", **time_ticks(steps)),
    }
    data = [_points(group, timed, best, place) for place, group in enumerate(_GROUPS)]
    note = "Large: the best. Hollow: `perfkit run` does not run it."
    if limit:
        data.append(_limit(limit, [min(steps), max(steps)]))
        note = f"Left of the line a layout fits into {size(limit)}. {note}"
    return Chart("Time against memory", note, {"data": [one for one in data if one["x"]], "layout": layout})


def _points(group: str, timed: Sequence[PlannedLayout], best: PlannedLayout | None, place: int) -> Spec:
    rows = [one for one in timed if _group(one) == group]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": group,
        "x": [one.memory.needed_bytes for one in rows],
        "y": [_step_ns(one) for one in rows],
        "text": [_label(one) for one in rows],
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "color": _COLOURS[place],
            "symbol": ["circle-open" if one.refused is not None else "circle" for one in rows],
            "size": [_MARKED if one is best else _MARKED / 2 for one in rows],
        },
    }


def _group(one: PlannedLayout) -> str:
    """Return what divides the model besides data parallelism."""
    for place, name in enumerate(("cp", "ep"), 4):
        if one.mesh.get(name, 1) > 1:
            return _GROUPS[place]
    stages, parts = one.mesh.get("pp", 1) > 1, one.mesh.get("tp", 1) > 1
    return _GROUPS[2 * stages + parts]


def _step_ns(one: PlannedLayout) -> float:
    return one.step.step_ns if one.step else 0.0


def _label(one: PlannedLayout) -> str:
    """Return what a point is, as HTML: plotly's texts are."""
    name = escape_unprintable(one.name).replace("&", "&amp;").replace("<", "&lt;")
    mesh = ",".join(f"{dimension}={count}" for dimension, count in one.mesh.items())
    mesh += ", sequence parallel" if one.sequence_parallel else ""
    mesh += ", split loss" if one.loss_parallel else ""
    kept = "" if one.checkpointing == "none" else f", {one.checkpointing} checkpointing"
    step = duration(one.step.step_ns) if one.step else ""
    return f"{name} ({mesh}{kept})<br>{size(one.memory.needed_bytes)}, {step} per step"


def _limit(limit: int, span: Sequence[float]) -> Spec:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": "the device's memory",
        "x": [limit] * 2,
        "y": list(span),
        "line": {"color": HUES[-1], "width": 2, "dash": "dash"},
        "hovertemplate": f"{size(limit)}<extra>the device's memory</extra>",
    }
