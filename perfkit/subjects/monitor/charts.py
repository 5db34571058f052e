"""The chart of the whole run: how does the step time move, from the first step to the last?"""

from typing import Final

from perfkit.base.formatting import duration, in_ms
from perfkit.records.per_run.monitor import StepTimeCurve
from perfkit.records.run import RunReport
from perfkit.subjects.monitor.tables import events
from perfkit.tables.charts import Chart, RunChart, axis
from perfkit.tables.labels import HUES

_FEWEST: Final = 2
_FAR: Final = 1.5
"""Longest steps are drawn where they take so many times the block's median."""
_FLAT: Final = 3.0
"""A first block whose longest step takes so many times the longest of all others is left out: they would be flat."""
_BAND: Final = "rgba(0, 158, 115, 0.25)"


def whole_run_chart(run: RunReport) -> Chart | None:
    """Return the step time over the run: median, the band of 80 % of the steps and ranks, and the longest."""
    curve = run.monitor.curve if run.monitor else None
    if curve is None or len(curve.steps) < _FEWEST:
        return None
    start, before = _start(curve)
    steps = curve.steps[start:]
    low, median, high, longest = (
        [in_ms(ns) for ns in values[start:]]
        for values in (curve.low_ns, curve.median_ns, curve.high_ns, curve.longest_ns)
    )
    hidden = {
        "type": "scatter",
        "mode": "lines",
        "x": steps,
        "line": {"width": 0, "color": HUES[0]},
        "hoverinfo": "skip",
    }
    shown = {"type": "scatter", "x": steps}
    hover = "from step %{x}: %{y:.6~g} ms<extra>"
    data = [
        hidden | {"y": low, "showlegend": False, "name": "10 %"},
        hidden | {"y": high, "fill": "tonexty", "fillcolor": _BAND, "name": "80 % of steps and ranks"},
        shown
        | {
            "y": median,
            "mode": "lines",
            "line": {"color": HUES[0]},
            "name": "median",
            "hovertemplate": f"{hover}median</extra>",
        },
        shown
        | {
            "y": [one if one >= _FAR * usual else None for one, usual in zip(longest, median, strict=True)],
            "mode": "markers",
            "marker": {"color": HUES[3], "size": 4},
            "name": "longest step",
            "hovertemplate": f"{hover}longest step</extra>",
        },
    ]
    layout = {"xaxis": axis("step"), "yaxis": axis("ms, with pauses", rangemode="tozero")}
    found = events(run, 1)
    happened = "" if found is None else "What happened in it is in the table of the whole run."
    note = " ".join(filter(None, [before, happened]))
    return Chart("Step time over the whole run", note, {"data": data, "layout": layout})


def _start(curve: StepTimeCurve) -> tuple[int, str]:
    """Return the first block to draw, and a sentence about the one that is left out: the first step starts loaders."""
    if len(curve.steps) <= _FEWEST or curve.longest_ns[0] <= _FLAT * max(curve.longest_ns[1:]):
        return 0, ""
    return 1, f"From step {curve.steps[1]:,} on: before, a step takes up to {duration(curve.longest_ns[0])}."


CHARTS: Final[dict[str, RunChart]] = {
    "whole_run": RunChart(whole_run_chart, "a chart of the whole run needs logs of the monitor (`--monitor`)", True),
}
