"""Kinds of charts as plotly specifications: plain dicts that the HTML page and notebooks draw alike.

A specification leaves the colours of text, grid and background to whoever draws it. A shape's `name` is the CSS
variable with its colour on the page.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from perfkit.base.formatting import escape_unprintable, install_extra
from perfkit.errors import LaunchEnvironmentError
from perfkit.records.aggregate import mean_own_step_ns
from perfkit.records.rank import RankReport
from perfkit.records.run import RunReport
from perfkit.tables.labels import COLOURS, HUES, MAX_RANKS, PATTERNS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

Spec = dict[str, Any]
Values = Sequence[float | None]
Interval = tuple[float, float]

SHAPES: Final = ("", "/", ".", "x", "\\", "-")
_AREAS: Final = (*HUES[:-1], "#9a6a3a", "#7fcbb0", "#bfaee3", "#cfc96a", "#e08fbf")
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
    in_words: str = ""
    """What it shows, where no table has the same."""
    is_narrow: bool = False
    """Whether half of a page's width is enough."""
    answer: str = ""
    """What it shows in a sentence, which is the title where the chart stands alone."""

    def figure(self) -> "Figure":
        """Return the chart as a plotly figure.

        Raises:
            LaunchEnvironmentError: plotly is not installed.
        """
        try:
            from plotly.graph_objects import Figure
        except ImportError as error:
            raise LaunchEnvironmentError(f"figures need plotly ({error}): {install_extra('notebook')}") from error
        title = " ".join(filter(None, (self.answer and f"{self.answer}.", self.title, self.note)))
        return Figure(self.spec).update_layout(title=as_html(title))


class PageCharts(NamedTuple):
    """The charts of an HTML page."""

    overview: list[Chart]
    """What the page begins with."""
    sections: list[list[Chart]]
    """One list per section of the document."""
    beside_tables: Sequence[Chart] = ()
    """Of the tables that compare runs."""


class Bars(NamedTuple):
    """A series of bars; `colour` is a key of `COLOURS`."""

    colour: str
    name: str
    values: Values


class RunChart(NamedTuple):
    """How a chart of a run is drawn, and what a run needs to have it."""

    build: Callable[[RunReport], Chart | None]
    needs: str
    without_steps: bool = False
    """Whether a run without recorded steps may have it."""

    def draw(self, run: RunReport) -> Chart | None:
        """Return the chart; None if the run has not what it needs."""
        return self.build(run) if self.without_steps or any(rank.steps for rank in run.ranks) else None


def ranks_with_steps(run: RunReport) -> list[RankReport]:
    """Return the ranks that recorded a step."""
    return [rank for rank in run.ranks if rank.steps]


def longest_ranks(ranks: list[RankReport], most: int) -> tuple[list[RankReport], str]:
    """Return the `most` ranks that take longest without communication, in order, and a note if others are left out.

    The whole step tells little: ranks that wait for each other take equally long.
    """
    if len(ranks) <= most:
        return ranks, ""
    kept = {id(rank) for rank in sorted(ranks, key=mean_own_step_ns, reverse=True)[:most]}
    note = f"The {most} of {len(ranks)} ranks that take longest without communication."
    return [rank for rank in ranks if id(rank) in kept], note


def stacked_bars(
    title: str,
    x: Sequence[str],
    series: Sequence[Bars],
    *,
    label: str = "",
    y: str = "ms, exposed",
    note: str = "",
    in_time: bool = False,
) -> Chart:
    """Return one bar per entry of `x`, in ms, stacked by category without those that are zero; `label` names `x`.

    A few bars that do not follow each other `in_time` are rows, which fill any width.
    """
    if not in_time and len(x) <= MAX_RANKS:
        return _stacked_rows(title, x, series, label, y, note)
    data = [
        bars(
            one.name,
            x,
            one.values,
            COLOURS[one.colour],
            PATTERNS.get(one.colour, ""),
            f"{label} %{{x}}: %{{y:.6~g}} ms<extra>{one.name}</extra>",
        )
        for one in series
        if any(one.values)
    ]
    layout = {
        "barmode": "stack",
        "bargap": 0 if len(x) > _MANY_BARS else 0.25,
        "legend": {"traceorder": "normal"},
        "xaxis": axis(label, type="category", nticks=20),
        "yaxis": axis(y),
    }
    return Chart(title, note, {"data": data, "layout": layout}, is_narrow=len(x) <= MAX_RANKS)


def _stacked_rows(title: str, names: Sequence[str], series: Sequence[Bars], label: str, y: str, note: str) -> Chart:
    ends, data = [0.0] * len(names), []
    for one in series:
        lengths = [value or 0.0 for value in one.values]
        if any(lengths):
            hover = f"{label} %{{y}}: %{{x:.6~g}} ms<extra>{one.name}</extra>"
            row = bars(one.name, lengths, names, COLOURS[one.colour], PATTERNS.get(one.colour, ""), hover)
            data.append(row | {"orientation": "h", "base": ends})
            ends = [round(end + length, 9) for end, length in zip(ends, lengths, strict=True)]
    rows = {"type": "category", "autorange": "reversed", "categoryorder": "array", "categoryarray": list(names)}
    layout = {
        "barmode": "overlay",
        "legend": {"traceorder": "normal"},
        "xaxis": axis(y, range=[0, max(ends) or 1]),
        "yaxis": axis(label, **rows),
    }
    return Chart(title, note, {"data": data, "layout": layout}, is_narrow=True)


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
        "xaxis": axis("step", type="category", nticks=20),
        "yaxis": axis("rank", type="category", nticks=20, autorange="reversed"),
    }
    return Chart(title, note, {"data": data, "layout": layout})


def matrix(title: str, ranks: Sequence[str], values: Sequence[Values], *, unit: str, note: str) -> Chart:
    """Return a heat map of a value between every two ranks."""
    data = {
        "type": "heatmap",
        "x": ranks,
        "y": ranks,
        "z": values,
        "colorscale": "Viridis",
        "colorbar": {"ticksuffix": unit, "exponentformat": "SI"},
        "hovertemplate": f"ranks %{{y}} and %{{x}}: %{{z:.4~s}}{unit}<extra></extra>",
        "hoverongaps": False,
    }
    layout = {
        "xaxis": axis("rank", type="category", nticks=20),
        "yaxis": axis("rank", type="category", nticks=20, autorange="reversed"),
    }
    return Chart(title, note, {"data": [data], "layout": layout})


def bandwidths(
    title: str, series: Sequence[tuple[str, Sequence[int], Sequence[float], Sequence[float] | None]], *, note: str
) -> Chart:
    """Return bandwidth against size, both logarithmic; a series is its name, sizes (B), B/s, and fitted B/s or None."""
    hover = "%{x:.4~s}B: %{y:.4~s}B/s"
    points, fits = [], []
    for place, (name, sizes, measured, fitted) in enumerate(series):
        colour = HUES[place % len(HUES)]
        shared = {"type": "scatter", "name": name, "x": sizes, "legendgroup": name}
        marker = {"symbol": place, "size": 9, "color": colour}
        hovers = {"hovertemplate": f"{hover}<extra>{name}</extra>"}
        points.append(shared | hovers | {"mode": "markers", "y": measured, "marker": marker})
        if fitted:
            fit = {"mode": "lines", "y": fitted, "showlegend": False, "line": {"color": colour, "dash": "dot"}}
            fits.append(shared | fit | {"hovertemplate": f"{hover}<extra>{name}, fitted</extra>"})
    layout = {
        "xaxis": axis("message size", type="log", ticksuffix="B", exponentformat="SI"),
        "yaxis": axis("busbw", type="log", ticksuffix="B/s", exponentformat="SI"),
    }
    return Chart(title, note, {"data": [*points, *fits], "layout": layout})


def levels(
    title: str,
    series: Sequence[tuple[str, Sequence[float], Sequence[int]]],
    *,
    label: str,
    y: str,
    limit: int | None,
    note: str,
) -> Chart:
    """Return bytes over time as step lines with the peak marked; a series is its name, times (ms) and bytes."""
    highest = max(limit or 1, *(size for _, _, sizes in series for size in sizes))
    layout: Spec = {
        "showlegend": True,
        "legend": {"y": 1.02, "yanchor": "bottom"},
        "xaxis": axis(label, range=[0, max(ms for _, times, _ in series for ms in times)]),
        "yaxis": axis(y, ticksuffix="B", exponentformat="SI", range=[0, 1.08 * highest]),
    }
    if limit:
        layout["shapes"] = [_horizontal("error", {"xref": "paper", "x0": 0, "x1": 1}, limit, 2)]
        text = {"xref": "paper", "x": 0, "xanchor": "left", "y": limit, "yanchor": "bottom", "showarrow": False}
        layout["annotations"] = [text | {"text": "device memory"}]
    return Chart(title, note, {"data": [_level(place, *one) for place, one in enumerate(series)], "layout": layout})


def stacked_levels(
    title: str, ms: Sequence[float], series: Sequence[tuple[str, Sequence[int]]], *, label: str, y: str, note: str
) -> Chart:
    """Return bytes over time as stacked areas, the first at the bottom; a series is its name and bytes."""
    data = [
        line(name, ms, sizes, f"%{{x:.6~g}} ms: %{{y:.4~s}}B<extra>{name}</extra>")
        | {
            "mode": "lines",
            "stackgroup": "bytes",
            "line": {"color": _AREAS[place % len(_AREAS)], "width": 0.5, "shape": "hv"},
        }
        for place, (name, sizes) in enumerate(series)
    ]
    layout = {
        "legend": {"traceorder": "reversed"},
        "xaxis": axis(label, range=[0, max(ms)]),
        "yaxis": axis(y, ticksuffix="B", exponentformat="SI"),
    }
    return Chart(title, note, {"data": data, "layout": layout})


def _level(place: int, name: str, ms: Sequence[float], sizes: Sequence[int]) -> Spec:
    look, peak = style(place), sizes.index(max(sizes))
    marks = [10 if at == peak else 0 for at in range(len(sizes))]
    return line(name, ms, sizes, f"%{{x:.6~g}} ms: %{{y:.4~s}}B<extra>{name}</extra>") | {
        "line": look["line"] | {"shape": "hv"},
        "marker": look["marker"] | {"size": marks, "opacity": 1, "line": {"width": 0}},
    }


def trend(
    title: str, x: Sequence[str], lines: Sequence[Spec], *, unit: str, medians: Sequence[tuple[int, int, float]] = ()
) -> Chart:
    """Return lines over runs, evenly spaced, as `line` returns them.

    `x` has a tick label per run, as HTML; `medians` are first run, last run and value of horizontal lines.
    """
    layout = {
        "shapes": [_horizontal("warning", {"x0": a - 0.4, "x1": b + 0.4}, ms, 3) for a, b, ms in medians],
        "showlegend": len(lines) > 1,
        "xaxis": axis("", tickvals=list(range(len(x))), ticktext=x, range=[-0.5, len(x) - 0.5]),
        "yaxis": axis(unit, rangemode="tozero"),
    }
    return Chart(title, "", {"data": [one | style(place) for place, one in enumerate(lines)], "layout": layout})


def line(name: str, x: Sequence[Any], y: Values, hover: str, intervals: Sequence[Interval | None] = ()) -> Spec:
    """Return a line with markers; `intervals` are the 95 % intervals of the values."""
    trace = {"type": "scatter", "mode": "lines+markers", "name": name, "x": x, "y": y, "hovertemplate": hover}
    if not any(intervals):
        return trace
    ends = [
        (0.0, 0.0) if interval is None or value is None else (interval[1] - value, value - interval[0])
        for value, interval in zip(y, intervals, strict=True)
    ]
    up, down = ([round(end, 6) for end in side] for side in zip(*ends, strict=True))
    return trace | {"error_y": {"type": "data", "symmetric": False, "array": up, "arrayminus": down, "thickness": 1}}


def bars(name: str, x: Sequence[Any], y: Sequence[Any], colour: str, pattern: str, hover: str) -> Spec:
    """Return a series of bars."""
    shading = {"shape": pattern, "size": 6, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,.55)"}
    marker = {"color": colour, "pattern": shading}
    return {"type": "bar", "name": name, "x": x, "y": y, "marker": marker, "hovertemplate": hover}


def as_html(text: str) -> str:
    """Return text for plotly, whose labels and texts are HTML."""
    return escape_unprintable(text).replace("&", "&amp;").replace("<", "&lt;")


def axis(title: str, **more: Any) -> Spec:
    """Return a titled axis."""
    return {"title": {"text": title}, **more}


def style(place: int) -> Spec:
    """Return colour, dash and marker of a line: distinguishable in print without colours, too."""
    place %= len(HUES)
    return {
        "line": {"color": HUES[place], "dash": _DASHES[place], "width": 1.5},
        "marker": {"color": HUES[place], "symbol": _SYMBOLS[place], "size": 7},
    }


def _horizontal(name: str, span: Spec, y: float, width: int) -> Spec:
    dashes = {"color": _SHAPE_COLOURS[name], "width": width, "dash": "dot"}
    return {"type": "line", "name": name, "y0": y, "y1": y, "line": dashes, **span}
