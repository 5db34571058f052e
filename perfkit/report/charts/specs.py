"""Kinds of charts as plotly specifications: plain dicts that the HTML page and notebooks draw alike.

A specification leaves the colours of text, grid and background to whoever draws it. A shape's `name` is the CSS
variable with its colour on the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perfkit.schema.common import CATEGORIES

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Spec = dict[str, Any]
Values = Sequence[float | None]

_BLUE, _VERMILION, _PINK, _ORANGE, _SKY, _GREEN, _GREY = (
    *("#0072b2", "#d55e00", "#cc79a7", "#e69f00", "#56b4e9", "#009e73"),
    "#8c8c8c",
)
"""Okabe and Ito's colours, distinguishable by the colour-blind."""
COLOURS: Final = dict(zip(CATEGORIES, (_BLUE, _VERMILION, _PINK, _ORANGE, _GREY), strict=True)) | {
    "transfer": _SKY,
    "wait": _VERMILION,
}
_PATTERNS: Final = {"communication": "/", "data_loading": ".", "memcpy": "x", "wait": "/"}
# In another order than the categories', so that lines are not mistaken for categories.
_HUES: Final = (_BLUE, _GREEN, _ORANGE, _PINK, _VERMILION, _GREY)
_SHAPES: Final = ("", "/", ".", "x", "\\", "-")
_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS: Final = ("circle", "square", "diamond", "cross", "x", "triangle-up")
_SHAPE_COLOURS: Final = {"warning": "#8a4600", "error": "#a40e26"}
_MANY_BARS: Final = 40


@dataclass(frozen=True, slots=True)
class Chart:
    """A titled chart."""

    title: str
    note: str
    spec: Spec
    """`{"data": [...], "layout": {...}}`, JSON-serializable."""

    def figure(self) -> "Figure":
        """Return the chart as a plotly figure."""
        from plotly.graph_objects import Figure

        title = " ".join(filter(None, (self.title, self.note)))
        return Figure(self.spec).update_layout(title=title)


class PageCharts(NamedTuple):
    """The charts of an HTML page."""

    overview: list[Chart]
    sections: list[list[Chart]]
    """One list per section of the document."""


class Bars(NamedTuple):
    """A series of bars; `colour` is a key of `COLOURS`."""

    colour: str
    name: str
    values: Values


class Line(NamedTuple):
    """A line with the 95 % interval of each point, None if unknown."""

    name: str
    y: Values
    intervals: Sequence[tuple[float, float] | None]
    x: Sequence[float] = ()


def stacked_bars(
    title: str, x: Sequence[str], series: Sequence[Bars], *, axis: str = "", y: str = "ms, exposed", note: str = ""
) -> Chart:
    """Return one bar per entry of `x`, stacked by category, in ms."""
    data = [
        _bar(one.name, x, one.values, COLOURS[one.colour], _PATTERNS.get(one.colour, ""))
        | {"hovertemplate": f"{axis} %{{x}}: %{{y:.6~g}} ms<extra>{one.name}</extra>"}
        for one in series
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0 if len(x) > _MANY_BARS else 0.25,
        "legend": {"traceorder": "normal"},
        "xaxis": _axis(axis, type="category", nticks=20),
        "yaxis": _axis(y),
    }
    return Chart(title, note, {"data": data, "layout": layout})


def signed_bars(
    title: str, x: Sequence[str], series: Sequence[tuple[str, Values]], *, axis: str, unit: str, note: str
) -> Chart:
    """Return one bar per entry of `x`, stacked: positive values above zero, negative ones below."""
    data = [
        _bar(name, x, values, _HUES[place], _SHAPES[place])
        | {"hovertemplate": f"%{{x}}: %{{y:.1f}} {unit}<extra>{name}</extra>"}
        for place, (name, values) in enumerate(series)
    ]
    layout = {
        "barmode": "relative",
        "legend": {"y": -0.25},
        "xaxis": _axis(axis, type="category"),
        "yaxis": _axis(unit),
    }
    return Chart(title, note, {"data": data, "layout": layout})


def heat_map(
    title: str, x: Sequence[str], y: Sequence[str], layers: Sequence[tuple[str, Sequence[Values]]], *, note: str
) -> Chart:
    """Return a heat map of steps (x) and ranks (y) in ms; a menu selects one of the named layers."""
    data = [
        {
            "type": "heatmap",
            "name": name,
            "x": x,
            "y": y,
            "z": ms,
            "colorscale": "Viridis",
            "colorbar": {"title": {"text": "ms"}},
            "hovertemplate": f"rank %{{y}}, step %{{x}}: %{{z:.6~g}} ms<extra>{name}</extra>",
            "hoverongaps": False,
            "visible": place == 0,
        }
        for place, (name, ms) in enumerate(layers)
    ]
    buttons = [
        {"label": name, "method": "restyle", "args": ["visible", [other == place for other in range(len(layers))]]}
        for place, (name, _) in enumerate(layers)
    ]
    layout = {
        "updatemenus": [{"buttons": buttons}],
        "xaxis": _axis("step", type="category", nticks=20),
        "yaxis": _axis("rank", type="category", nticks=20, autorange="reversed"),
    }
    return Chart(title, note, {"data": data, "layout": layout})


def bandwidths(
    title: str, series: Sequence[tuple[str, Sequence[int], Sequence[float], Sequence[float] | None]], *, note: str
) -> Chart:
    """Return bandwidth against size, both logarithmic; a series is its name, sizes (B), B/s, and fitted B/s or None."""
    hover = "%{x:.4~s}B: %{y:.4~s}B/s"
    points, fits = [], []
    for place, (name, sizes, measured, fitted) in enumerate(series):
        colour = _HUES[place % len(_HUES)]
        shared = {"type": "scatter", "name": name, "x": sizes, "legendgroup": name}
        marker = {"symbol": place, "size": 9, "color": colour}
        hovers = {"hovertemplate": f"{hover}<extra>{name}</extra>"}
        points.append(shared | hovers | {"mode": "markers", "y": measured, "marker": marker})
        if fitted:
            line = {"mode": "lines", "y": fitted, "showlegend": False, "line": {"color": colour, "dash": "dot"}}
            fits.append(shared | line | {"hovertemplate": f"{hover}<extra>{name}, fitted</extra>"})
    layout = {
        "xaxis": _axis("message size", type="log", ticksuffix="B", exponentformat="SI"),
        "yaxis": _axis("busbw", type="log", ticksuffix="B/s", exponentformat="SI"),
    }
    return Chart(title, note, {"data": [*points, *fits], "layout": layout})


def levels(
    title: str,
    series: Sequence[tuple[str, Sequence[float], Sequence[int]]],
    *,
    axis: str,
    y: str,
    limit: int | None,
    note: str,
) -> Chart:
    """Return bytes over time as step lines with the peak marked; a series is its name, times (ms) and bytes."""
    data = [_level(place, *one) for place, one in enumerate(series)]
    highest = max(limit or 1, *(size for _, _, sizes in series for size in sizes))
    layout: Spec = {
        "showlegend": True,
        "legend": {"y": 1.02, "yanchor": "bottom"},
        "xaxis": _axis(axis, range=[0, max(ms for _, times, _ in series for ms in times)]),
        "yaxis": _axis(y, ticksuffix="B", exponentformat="SI", range=[0, 1.08 * highest]),
    }
    if limit:
        layout["shapes"] = [_horizontal("error", {"xref": "paper", "x0": 0, "x1": 1}, limit, 2)]
        label = {"xref": "paper", "x": 0, "xanchor": "left", "y": limit, "yanchor": "bottom", "showarrow": False}
        layout["annotations"] = [label | {"text": "device memory"}]
    return Chart(title, note, {"data": data, "layout": layout})


def _level(place: int, name: str, ms: Sequence[float], sizes: Sequence[int]) -> Spec:
    peak = sizes.index(max(sizes))
    marks = [10 if at == peak else 0 for at in range(len(sizes))]
    style = _style(place)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": ms,
        "y": sizes,
        "line": style["line"] | {"shape": "hv"},
        "marker": style["marker"] | {"size": marks, "opacity": 1, "line": {"width": 0}},
        "hovertemplate": f"%{{x:.6~g}} ms: %{{y:.4~s}}B<extra>{name}</extra>",
    }


def trend(
    title: str,
    x: Sequence[str],
    hover: Sequence[str],
    lines: Sequence[Line],
    *,
    unit: str,
    medians: Sequence[tuple[int, int, float]] = (),
) -> Chart:
    """Return lines over runs, evenly spaced.

    Args:
        title: of the chart.
        x: tick labels, one per run.
        hover: what hovering shows of each run; both as HTML.
        lines: one value per run.
        unit: of the values.
        medians: first run, last run and value of horizontal lines.
    """
    places = list(range(len(x)))
    end = f" {unit}" if unit else ""
    data = [
        timeline(line, places, hover)
        | _style(place)
        | {"hovertemplate": f"%{{customdata}}: %{{y:.6~g}}{end}<extra>{line.name}</extra>"}
        for place, line in enumerate(lines)
    ]
    layout = {
        "shapes": [_horizontal("warning", {"x0": a - 0.4, "x1": b + 0.4}, ms, 3) for a, b, ms in medians],
        "showlegend": len(lines) > 1,
        "xaxis": _axis("", tickvals=places, ticktext=x, range=[-0.5, len(x) - 0.5]),
        "yaxis": _axis(unit, rangemode="tozero"),
    }
    return Chart(title, "", {"data": data, "layout": layout})


def timeline(line: Line, x: Sequence[float | str], hover: Sequence[str]) -> Spec:
    """Return one trace over time, in ms, in the theme's colours; `hover` is what hovering shows of each point."""
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": line.name,
        "x": x,
        "y": line.y,
        "customdata": hover,
        "hovertemplate": "%{customdata}: %{y:.6~g} ms<extra></extra>",
        **_error_bars(line, thickness=1, width=3),
    }


def throughput(
    title: str, measured: Line, forecast: Line | None, ideal: Line, *, axis: str, unit: str, note: str
) -> Chart:
    """Return throughput against ranks on logarithmic axes, with intervals, a forecast and the ideal."""
    lines = [measured, *([forecast] if forecast else [])]
    data: list[Spec] = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": line.name,
            "x": line.x,
            "y": line.y,
            "line": {"color": _HUES[place], "dash": "dot" if place else "solid"},
            "marker": {"symbol": "diamond-open" if place else "circle", "size": 8},
            **_error_bars(line),
            "hovertemplate": f"{axis} %{{x}}: %{{y:.6~g}} {unit}<extra>{line.name}</extra>",
        }
        for place, line in enumerate(lines)
    ]
    straight = {"mode": "lines", "line": {"color": _GREY, "dash": "dash"}, "hoverinfo": "skip"}
    data.append({"type": "scatter", "name": ideal.name, "x": ideal.x, "y": ideal.y} | straight)
    sizes = sorted({size for line in lines for size in line.x})
    layout = {
        "legend": {"y": -0.25},
        "xaxis": _axis(axis, type="log", tickvals=sizes, ticktext=[str(size) for size in sizes]),
        "yaxis": _axis(unit, type="log"),
    }
    return Chart(title, note, {"data": data, "layout": layout})


def _bar(name: str, x: Sequence[str], y: Values, colour: str, pattern: str) -> Spec:
    shading = {"shape": pattern, "size": 6, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,.55)"}
    return {"type": "bar", "name": name, "x": x, "y": y, "marker": {"color": colour, "pattern": shading}}


def _axis(title: str, **more: Any) -> Spec:
    return {"title": {"text": title}, **more}


def _style(place: int) -> Spec:
    """Return colour, dash and marker of a line: distinguishable in print without colours, too."""
    place %= len(_HUES)
    return {
        "line": {"color": _HUES[place], "dash": _DASHES[place], "width": 1.5},
        "marker": {"color": _HUES[place], "symbol": _SYMBOLS[place], "size": 7},
    }


def _horizontal(name: str, span: Spec, y: float, width: int) -> Spec:
    line = {"color": _SHAPE_COLOURS[name], "width": width, "dash": "dot"}
    return {"type": "line", "name": name, "y0": y, "y1": y, "line": line, **span}


def _error_bars(line: Line, **style: Any) -> Spec:
    if not any(line.intervals):
        return {}
    ends = [
        (0.0, 0.0) if interval is None or y is None else (round(interval[1] - y, 6), round(y - interval[0], 6))
        for y, interval in zip(line.y, line.intervals, strict=True)
    ]
    bars = {
        "type": "data",
        "symmetric": False,
        "array": [up for up, _ in ends],
        "arrayminus": [down for _, down in ends],
    }
    return {"error_y": bars | style}
