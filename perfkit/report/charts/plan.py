"""The chart of a plan: which layouts fit, and how fast they are."""

from collections.abc import Sequence
from math import ceil, floor, log10
from typing import Final

from perfkit.base.formatting import duration, size
from perfkit.records.plan import Plan, PlannedLayout
from perfkit.tables.charts import Chart, PageCharts, Spec, as_html, axis
from perfkit.tables.labels import HUES

_Unit = tuple[float, str]

_TIMES: Final[tuple[_Unit, ...]] = ((1, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s"), (60e9, "min"), (3600e9, "h"))
_SIZES: Final[tuple[_Unit, ...]] = tuple(
    (10.0**power, f"{name}B") for power, name in zip(range(0, 18, 3), ("", *"kMGTP"), strict=True)
)
_MARGIN: Final = 1.3
"""By which an axis goes beyond the values, as the page draws it."""
_FEWEST: Final = 3
_MOST: Final = 8


def time_ticks(times_ns: Sequence[float]) -> Spec:
    """Return the ticks of an axis with these times, in ns."""
    return _ticks(times_ns, _TIMES)


def size_ticks(sizes_bytes: Sequence[float]) -> Spec:
    """Return the ticks of an axis with these numbers of bytes."""
    return _ticks(sizes_bytes, _SIZES)


def _ticks(values: Sequence[float], units: Sequence[_Unit]) -> Spec:
    low, high = min(values) / _MARGIN, max(values) * _MARGIN
    found = [value for value in _round_values(high, units, (1, 2, 5)) if value >= low]
    if len(found) > _MOST:
        found = [value for value in _round_values(high, units, (1,)) if value >= low]
    if len(found) < _FEWEST:
        found = _even_values(low, high, units)
    return {"tickvals": found, "ticktext": [_text(value, units) for value in found]}


def _round_values(high: float, units: Sequence[_Unit], factors: Sequence[int]) -> list[float]:
    """Return all round values up to `high`, those of each unit below the next unit."""
    found: list[float] = []
    for place, (unit, _) in enumerate(units):
        end = units[place + 1][0] if place + 1 < len(units) else float("inf")
        for power in range(max(0, ceil(log10(high / unit))) + 1 if high >= unit else 0):
            found += [value for factor in factors if (value := factor * 10**power * unit) < min(end, high)]
        if end == 60 * unit:
            found = [30 * unit if value == 50 * unit else value for value in found]
    return found


def _even_values(low: float, high: float, units: Sequence[_Unit]) -> list[float]:
    """Return values at even distances, 1, 2 or 5 times a power of ten of the unit of `low`."""
    unit, _ = _unit(low, units)
    rough = (high - low) / 3 / unit
    power = 10.0 ** floor(log10(rough))
    step = power * next(factor for factor in (5, 2, 1) if factor * power <= rough)
    first, last = ceil(low / unit / step), floor(high / unit / step)
    return [round(place * step, 9) * unit for place in range(first, last + 1)]


def _unit(value: float, units: Sequence[_Unit]) -> _Unit:
    return next((one for one in reversed(units) if value >= one[0] * (1 - 1e-9)), units[0])


def _text(value: float, units: Sequence[_Unit]) -> str:
    unit, name = _unit(value, units)
    return f"{value / unit:,.6g} {name}"


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
    """Return what a point is."""
    name = as_html(one.name)
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
