"""The charts of a run as plotly figures, for notebooks; the page draws the same data by itself."""

from typing import TYPE_CHECKING, Any, Final

from perfkit.errors import UsageError
from perfkit.report.charts.run import CHARTS, ChartName, chart
from perfkit.schema.common import CATEGORIES
from perfkit.schema.report import Report
from perfkit.schema.run import RunReport

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

COLOURS: Final = dict(zip(CATEGORIES, ("#0072b2", "#d55e00", "#cc79a7", "#e69f00", "#8c8c8c"), strict=True)) | {
    "transfer": "#56b4e9",
    "wait": "#d55e00",
}
"""Okabe and Ito's, which the colour-blind can tell apart."""
_PATTERNS: Final = {"communication": "/", "data_loading": ".", "memcpy": "x", "wait": "/"}


def plot(record: Report | RunReport, name: ChartName) -> "Figure":
    """Return the chart `name` of a run as a figure.

    Raises:
        UsageError: the run has no such chart, or there are several runs.
    """
    run = _only(record) if isinstance(record, Report) else record
    data = chart(run, name)
    if data is None:
        raise UsageError(f"{run.run}: {CHARTS[name].needs}")
    return _DRAW[data["kind"]](data)


def _only(report: Report) -> RunReport:
    if len(report.runs) == 1:
        return report.runs[0]
    raise UsageError(f"the report has {len(report.runs)} runs: plot one of them, such as report.runs[0]")


def _stack(data: dict[str, Any]) -> "Figure":
    from plotly.graph_objects import Bar, Figure

    bars = [
        Bar(
            name=one["name"],
            x=data["x"],
            y=one["ms"],
            hovertemplate=f"{data['axis']} %{{x}}: %{{y:.6~g}} ms<extra>{one['name']}</extra>",
            marker={"color": COLOURS[one["colour"]], "pattern": {"shape": _PATTERNS.get(one["colour"], "")}},
        )
        for one in data["series"]
    ]
    figure = Figure(bars)
    figure.update_layout(barmode="stack", title=_title(data), xaxis={"title": data["axis"], "type": "category"})
    return figure.update_yaxes(title=data["y"])


def _heat_map(data: dict[str, Any]) -> "Figure":
    from plotly.graph_objects import Figure, Heatmap

    layers = [
        Heatmap(
            x=data["x"],
            y=data["y"],
            z=layer["ms"],
            colorscale="Viridis",
            colorbar={"title": "ms"},
            hovertemplate=f"rank %{{y}}, step %{{x}}: %{{z:.6~g}} ms<extra>{layer['name']}</extra>",
            visible=number == 0,
        )
        for number, layer in enumerate(data["layers"])
    ]
    choices = [
        {"label": layer["name"], "method": "restyle", "args": ["visible", [n == number for n in range(len(layers))]]}
        for number, layer in enumerate(data["layers"])
    ]
    figure = Figure(layers)
    figure.update_layout(title=_title(data), updatemenus=[{"buttons": choices}])
    figure.update_xaxes(title="step", type="category")
    return figure.update_yaxes(title="rank", type="category", autorange="reversed")


def _scatter(data: dict[str, Any]) -> "Figure":
    from plotly.graph_objects import Figure, Scatter

    figure = Figure()
    for number, one in enumerate(data["series"]):
        hover = f"%{{x:.4~s}}B: %{{y:.4~s}}B/s<extra>{one['name']}</extra>"
        style = {"name": one["name"], "legendgroup": one["name"], "x": one["bytes"], "hovertemplate": hover}
        figure.add_trace(Scatter(y=one["busbw"], mode="markers", marker={"symbol": number}, **style))
        if one["fit"]:
            figure.add_trace(Scatter(y=one["fit"], mode="lines", line={"dash": "dot"}, showlegend=False, **style))
    figure.update_layout(title=_title(data))
    figure.update_xaxes(title="message size", type="log", ticksuffix="B", exponentformat="SI")
    return figure.update_yaxes(title="busbw", type="log", ticksuffix="B/s", exponentformat="SI")


def _levels(data: dict[str, Any]) -> "Figure":
    from plotly.graph_objects import Figure, Scatter

    figure = Figure(
        [
            Scatter(
                name=one["name"],
                x=one["ms"],
                y=one["bytes"],
                mode="lines+markers",
                line={"shape": "hv", "dash": _DASHES[number % len(_DASHES)]},
                marker={
                    "symbol": number,
                    "size": [9 if place == one["peak"] else 0 for place in range(len(one["ms"]))],
                },
                hovertemplate=f"%{{x:.6~g}} ms: %{{y:.4~s}}B<extra>{one['name']}</extra>",
            )
            for number, one in enumerate(data["series"])
        ]
    )
    if data["limit"]:
        figure.add_hline(y=data["limit"], line_dash="dot", annotation_text="the device's memory")
    figure.update_layout(title=_title(data), showlegend=True)
    figure.update_xaxes(title=data["axis"])
    return figure.update_yaxes(title=data["y"], rangemode="tozero", ticksuffix="B", exponentformat="SI")


_DASHES: Final = ("solid", "dash", "dot", "dashdot", "longdash")
_DRAW: Final = {"stack": _stack, "heat": _heat_map, "scatter": _scatter, "levels": _levels}


def _title(data: dict[str, Any]) -> str:
    return " ".join(filter(None, (data["title"], data["note"])))
