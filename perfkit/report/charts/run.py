"""The charts of a report: those of a run's subjects and of scaling series. A table has the same numbers."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from perfkit.base.formatting import escape_unprintable
from perfkit.errors import UsageError
from perfkit.plugins import resolve
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.records.scaling import Estimate, ScalingPoint, ScalingSeries
from perfkit.report.content.scaling import PARTS
from perfkit.report.wording.ledger import LABELS
from perfkit.subjects.table import asked_subjects
from perfkit.tables.charts import Chart, PageCharts, RunChart, axis, bars, line
from perfkit.tables.labels import COLOURS, HUES, MAX_RANKS, PATTERNS

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def page_charts(report: Report) -> PageCharts:
    """Return the charts of a report's page, which has cells to choose from in place of the map of ranks and steps."""
    series = report.multi_run.series if report.multi_run else []
    return PageCharts(series_charts(series), [run_charts(run, without="heat_map") for run in report.runs])


def plot(record: Report | RunReport, name: str) -> "Figure":
    """Return the chart `name` of a run as a plotly figure.

    Raises:
        UsageError: the run has no such chart, or there are several runs.
    """
    run, row = _only(record) if isinstance(record, Report) else record, subject_charts()[name]
    drawn = row.draw(run)
    if drawn is None:
        raise UsageError(f"{run.run}: {row.needs}")
    return drawn.figure()


def _only(report: Report) -> RunReport:
    if len(report.runs) == 1:
        return report.runs[0]
    raise UsageError(f"the report has {len(report.runs)} runs: plot one of them, such as report.runs[0]")


def run_charts(run: RunReport, without: str | None = None) -> list[Chart]:
    """Return the charts of a run, in the order of its subjects."""
    rows = subject_charts()
    return [drawn for name, row in rows.items() if name != without and (drawn := row.draw(run))]


def subject_charts() -> dict[str, RunChart]:
    """Return the charts of all subjects by name."""
    found = (resolve(subject.charts) for _, subject in asked_subjects(None) if subject.charts)
    return {name: row for charts in found for name, row in charts.items()}


# ---- scaling series --------------------------------------------------------------------------------------------------


_LONG: Final = {
    "host": "host / launch",
    "serialisation": "dependency (serialisation)",
    "load_balance": "load balance",
    "computation_scaling": "computation",
}
_MEANING: Final = {
    "load_balance": "wait",
    "host": "overhead",
    "input": "data_loading",
    "serialisation": "dependency",
    "transfer": "transfer",
    "computation_scaling": "compute",
}
"""Whose colour each factor has: of what takes the time that is lost."""


def series_charts(series: Sequence[ScalingSeries]) -> list[Chart]:
    """Return the charts of every series."""
    charts = (chart for one in series for chart in (_steps(one), _throughput(one), _lost(one)))
    return [chart for chart in charts if chart]


def _steps(series: ScalingSeries) -> Chart | None:
    """Return the mean step by ranks, divided as the ledgers of the runs are, and the step of ideal scaling."""
    if not all(point.parts for point in series.points):
        return None
    sizes = [str(point.world_size) for point in series.points]
    by_cause = {part.cause: part for point in series.points for part in point.parts}
    rows = {cause: [_ms(point, cause) for point in series.points] for cause in by_cause}
    order = sorted(rows, key=lambda cause: (cause != "compute", -max(rows[cause])))
    data = [
        bars(LABELS[cause], sizes, rows[cause], COLOURS[cause], PATTERNS.get(cause, ""), _of_step(LABELS[cause]))
        for cause in order
    ]
    first = series.points[0]
    works = [1 if series.kind == "weak" else first.world_size / point.world_size for point in series.points]
    reference = sum(_ms(first, cause) for cause in rows)
    ideal = line("ideal", sizes, [round(reference * work, 6) for work in works], _of_step("ideal"))
    look = {"line": {"color": HUES[-1], "dash": "dash"}, "marker": {"color": HUES[-1], "size": 8}}
    layout = {"barmode": "stack", "legend": {"y": -0.25, "traceorder": "normal"}}
    layout |= {"xaxis": axis("ranks", type="category"), "yaxis": axis("ms per step")}
    title = f"Where the step goes by ranks: {escape_unprintable(series.name)}"
    return Chart(title, f"{escape_unprintable(series.sentence)}.", {"data": [*data, ideal | look], "layout": layout})


def _ms(point: ScalingPoint, cause: str) -> float:
    return round(sum(part.ns for part in point.parts if part.cause == cause) / 1e6, 6)


def _of_step(name: str) -> str:
    return f"%{{x}} ranks: %{{y:.4~g}} ms<extra>{name}</extra>"


def _throughput(series: ScalingSeries) -> Chart | None:
    points = [(point.world_size, point.step_time.samples_per_s) for point in series.points]
    measured = [(size, estimate) for size, estimate in points if estimate is not None]
    if len(measured) < 2:
        return None
    forecast = [(one.world_size, one.samples_per_s) for one in series.forecasts if one.samples_per_s is not None]
    lines = [
        _line("measured", measured, "solid", "circle"),
        *([_line("forecast by the USL", forecast, "dot", "diamond-open", HUES[1])] if forecast else []),
    ]
    least, base = measured[0]
    sizes = [size for size, _ in (*measured, *forecast)]
    rates = [round(base.value * size / least, 3) for size in sizes]
    ideal = {"mode": "lines", "line": {"color": HUES[-1], "dash": "dash"}, "hoverinfo": "skip"}
    layout = {
        "legend": {"y": -0.25},
        "xaxis": axis("ranks", type="log", tickvals=sorted(set(sizes)), ticktext=[str(n) for n in sorted(set(sizes))]),
        "yaxis": axis("samples/s", type="log"),
    }
    return Chart(
        f"Throughput against ranks: {escape_unprintable(series.name)}",
        f"{_ranges(series)}; both axes are logarithmic.",
        {"data": [*lines, line("ideal", sizes, rates, "") | ideal], "layout": layout},
        is_narrow=True,
    )


def _ranges(series: ScalingSeries) -> str:
    kinds = {point.step_time.resampled for point in series.points}
    if kinds == {"runs"}:
        return "With 95 % intervals"
    return "With the spread over steps where there are fewer than three runs, which does not show how runs differ"


def _line(
    name: str, points: Sequence[tuple[int, Estimate]], dash: str, symbol: str, colour: str = HUES[0]
) -> dict[str, Any]:
    sizes, estimates = [size for size, _ in points], [estimate for _, estimate in points]
    rates = [round(estimate.value, 3) for estimate in estimates]
    hover = f"ranks %{{x}}: %{{y:.6~g}} samples/s<extra>{name}</extra>"
    look = {"line": {"color": colour, "dash": dash}, "marker": {"symbol": symbol, "size": 8}}
    return line(name, sizes, rates, hover, [estimate.interval for estimate in estimates]) | look


def _lost(series: ScalingSeries) -> Chart | None:
    if not series.lost:
        return None
    x = [f"{lost.from_size} \u2192 {lost.to_size}" for lost in series.lost]
    data = [
        bars(
            _LONG.get(part, part),
            x,
            [round(getattr(lost, part), 4) for lost in series.lost],
            COLOURS[_MEANING[part]],
            PATTERNS.get(_MEANING[part], ""),
            f"%{{x}}: %{{y:.1f}} percentage points<extra>{_LONG.get(part, part)}</extra>",
        )
        for part in PARTS
    ]
    layout = {"barmode": "relative", "legend": {"y": -0.25}}
    layout |= {"xaxis": axis("ranks", type="category"), "yaxis": axis("percentage points")}
    return Chart(
        f"Efficiency lost between world sizes: {escape_unprintable(series.name)}",
        "Percentage points of global efficiency; below zero: gained.",
        {"data": data, "layout": layout},
        is_narrow=len(x) <= MAX_RANKS,
    )
