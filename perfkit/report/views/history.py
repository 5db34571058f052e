"""The document and charts of a `History`."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from perfkit.base.formatting import (
    MISSING,
    duration,
    escape_unprintable,
    format_percent,
    in_ms,
    percent_change,
    plural,
    rate,
)
from perfkit.records.common import UNNAMED
from perfkit.records.comparison import ConfigHistory, History, HistoryPoint
from perfkit.report.content.document import Document, KeyValue, Section
from perfkit.report.content.run_facts import finding_lines
from perfkit.tables.charts import Chart, PageCharts, as_html, axis, line, trend
from perfkit.tables.specification import Field, Table, joined, make_table, number, words

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_COMMIT: Final = 10
"""Digits of a commit that are shown."""
_LISTED: Final = 6
_FACTORS: Final = {
    "parallel": "parallel",
    "load_balance": "load bal.",
    "host": "host",
    "input": "input",
    "serialisation": "serial.",
    "transfer": "transfer",
}
_TOOLS: Final = {"perfkit"}
"""Versions that do not affect what is measured."""
NOTES: Final = (
    "step: mean over steps of the slowest rank, without the profiler; profiled step: of recorded steps, because not "
    "all runs have others. In brackets: over the runs of a commit, if there are three or more, its 95 % bootstrap "
    "interval; over one run, the spread of its steps, which does not show run-to-run variation.",
    "change point: significant by Pettitt's test at the 5 % level, and by a bootstrap over the runs on either side.",
)


def document(report: History, top: int) -> Document:
    """Return the content of `report`: the newest `top` runs or commits of each configuration."""
    titles = _titles(report.configurations)
    sections = [_section(config, title, top) for config, title in zip(report.configurations, titles, strict=True)]
    return Document("perfkit history", sections, list(NOTES), findings=finding_lines(report.findings))


def _titles(configs: Sequence[ConfigHistory]) -> list[str]:
    """Return a title per configuration, with the settings in which equal titles differ."""
    short = [_title(config) for config in configs]
    ambiguous = {title for title, count in Counter(short).items() if count > 1}
    names = {name for config in configs for name in config.settings} - {"workload", "source", "ranks"}
    titles = []
    for config, title in zip(configs, short, strict=True):
        alike = [one.settings for one, other in zip(configs, short, strict=True) if other == title]
        differing = [name for name in sorted(names) if len({repr(one.get(name)) for one in alike}) > 1]
        values = [f"{name} = {_value(config.settings.get(name))}" for name in differing[:_LISTED]]
        titles.append(escape_unprintable(f"{title} ({', '.join(values)})" if title in ambiguous else title))
    return titles


def _title(config: ConfigHistory) -> str:
    settings = config.settings
    ranks = f"{settings.get('ranks')} rank" + ("" if settings.get("ranks") == 1 else "s")
    source = settings.get("source")
    described = [] if source in (None, UNNAMED) else [f"input from {source}"]
    return ", ".join([str(settings.get("workload")), *described, ranks])


def _value(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _section(config: ConfigHistory, title: str, top: int) -> Section:
    worse = [change for change in config.change_points if change.after_ns > change.before_ns]
    tables = [
        make_table("Step-time change points", config.change_points, _CHANGE_POINTS),
        _steps(config, top),
        _efficiency(config, top),
    ]
    return Section(
        title=title,
        headline=_headline(config),
        tone="warning" if worse else "good" if config.change_points else "info",
        key_values=_facts(config),
        tables=[table for table in tables if table],
    )


def _headline(config: ConfigHistory) -> str:
    count = plural(config.runs, "run")
    if config.reason:
        return f"{config.reason}."
    if not config.change_points:
        return f"{count}: no change of the {_step(config)} time beyond run-to-run variation."
    last = config.change_points[-1]
    more = f" ({len(config.change_points)} changes in all)" if len(config.change_points) > 1 else ""
    return (
        f"{count}: {_step(config)} time {duration(last.before_ns)} → {duration(last.after_ns)} "
        f"({percent_change(last.after_ns / last.before_ns)}) since {escape_unprintable(last.run)}{more}."
    )


def _facts(config: ConfigHistory) -> list[KeyValue]:
    devices = [str(name) for name in config.settings.get("device_names") or config.settings.get("devices") or []]
    first, last = config.points[0], config.points[-1]
    steps = [point.step_ns for point in config.points]
    return [
        KeyValue("device", escape_unprintable(", ".join(devices)) or MISSING),
        KeyValue("time", _when(first) + (f" to {_when(last)}" if first is not last else "")),
        KeyValue(_step(config), f"{duration(min(steps))} to {duration(max(steps))}, median {duration(median(steps))}"),
    ]


def _step(config: ConfigHistory) -> str:
    return "step" if config.measured_on == "plain" else "profiled step"


def _when(point: HistoryPoint) -> str:
    return escape_unprintable(point.started_at.replace("T", " ")[:16])


def _commit(commit: str | None) -> str:
    return MISSING if commit is None else escape_unprintable(commit[:_COMMIT])


def _name(point: HistoryPoint) -> str:
    more = f" and {len(point.runs) - 1} more" if len(point.runs) > 1 else ""
    return escape_unprintable(point.runs[0]) + more


_CHANGE_POINTS: Final = (
    words("since", lambda change: change.run),
    words("commit", lambda change: _commit(change.commit)),
    number("before", lambda change: change.before_ns, duration),
    number("after", lambda change: change.after_ns, duration),
    number(
        "change",
        lambda change: percent_change(change.after_ns / change.before_ns),
        tone=lambda change: "warning" if change.after_ns > change.before_ns else "good",
    ),
    number("95 % interval", lambda change: f"{change.interval[0]:.3f} to {change.interval[1]:.3f}"),
)


def _steps(config: ConfigHistory, top: int) -> Table | None:
    changed = ["", *(_new_versions(before, after) for before, after in pairwise(config.points))]
    columns = (
        words("started", lambda row: _when(row[0])),
        words("run", lambda row: _name(row[0])),
        words("commit", lambda row: _commit(row[0].commit)),
        number(_step(config), lambda row: row[0].step_ns, duration, note=lambda row: _interval(row[0])),
        number("samples/s", lambda row: rate(row[0].samples_per_s, "samples").removesuffix(" samples/s")),
        *([words("new versions", lambda row: row[1])] if any(changed) else []),
    )
    rows = list(zip(config.points, changed, strict=True))
    return make_table("Step time", rows[-top:], columns, _left_out(rows, top))


def _interval(point: HistoryPoint) -> str:
    return f"[{duration(point.interval_ns[0])}, {duration(point.interval_ns[1])}]" if point.interval_ns else ""


def _new_versions(before: HistoryPoint, after: HistoryPoint) -> str:
    names = sorted((before.versions.keys() | after.versions.keys()) - _TOOLS)
    pairs = [(name, before.versions.get(name, MISSING), after.versions.get(name, MISSING)) for name in names]
    return escape_unprintable(", ".join(f"{name} {old} → {new}" for name, old, new in pairs if old != new))


def _left_out(rows: Sequence[object], top: int) -> str:
    return f"{len(rows) - top} older rows not shown" if len(rows) > top else ""


def _efficiency(config: ConfigHistory, top: int) -> Table | None:
    columns = (words("run", _name), *(_factor(key, title) for key, title in _FACTORS.items()))
    remark = joined(
        "parallel efficiency is the product of the five factors to its right",
        "each value is the median over the runs of a commit" if any(len(one.runs) > 1 for one in config.points) else "",
        _left_out(config.points, top),
    )
    return make_table("Efficiency", config.points[-top:], columns, remark)


def _factor(key: str, title: str) -> Field:
    return number(title, lambda point: point.efficiency.get(key), format_percent)


# ---- charts --------------------------------------------------------------------------------------------------------


def page_charts(report: History) -> PageCharts:
    """Return the charts of every configuration, with all of its runs."""
    return PageCharts([], [_charts(config) for config in report.configurations])


def _charts(config: ConfigHistory) -> list[Chart]:
    points = config.points
    times = [
        as_html(_when(point)) + (f"<br>{as_html(_commit(point.commit))}" if point.commit else "") for point in points
    ]
    steps = _line("step", points, [in_ms(point.step_ns) for point in points], " ms", list(map(_interval_ms, points)))
    factors = [
        _line(title, points, [_rounded(point.efficiency.get(name)) for point in points])
        for name, title in _FACTORS.items()
    ]
    charts = [trend("Step time", times, [steps], unit="ms", medians=_medians(config))]
    if any(value is not None for factor in factors for value in factor["y"]):
        charts.append(trend("Efficiency and its factors", times, factors, unit=""))
    return charts


def _line(
    name: str,
    points: Sequence[HistoryPoint],
    y: Sequence[float | None],
    unit: str = "",
    intervals: Sequence[tuple[float, float] | None] = (),
) -> dict[str, Any]:
    """Return a line over runs that hovering names."""
    hover = f"%{{customdata}}: %{{y:.6~g}}{unit}<extra>{name}</extra>"
    names = [as_html(f"{_name(point)} {_commit(point.commit)}" if point.commit else _name(point)) for point in points]
    return line(name, list(range(len(y))), y, hover, intervals) | {"customdata": names}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _interval_ms(point: HistoryPoint) -> tuple[float, float] | None:
    return (in_ms(point.interval_ns[0]), in_ms(point.interval_ns[1])) if point.interval_ns else None


def _medians(config: ConfigHistory) -> list[tuple[int, int, float]]:
    """Return the indices of the first and last point between change points, and the median there (ms)."""
    if not config.change_points:
        return []
    place = {run: index for index, point in enumerate(config.points) for run in point.runs}
    starts = [0, *(place[change.run] for change in config.change_points)]
    ends = [*(place[change.last_before] for change in config.change_points), len(config.points) - 1]
    medians = [config.change_points[0].before_ns, *(change.after_ns for change in config.change_points)]
    return [(start, end, in_ms(ns)) for start, end, ns in zip(starts, ends, medians, strict=True)]


def plot_steps(report: History) -> "Figure":
    """Return the step time of every run or commit over time as a plotly figure, one line per configuration."""
    lines = [
        _line(
            as_html(title),
            config.points,
            [in_ms(p.step_ns) for p in config.points],
            " ms",
            [*map(_interval_ms, config.points)],
        )
        | {"x": [point.started_at for point in config.points]}
        for config, title in zip(report.configurations, _titles(report.configurations), strict=True)
    ]
    layout = {"yaxis": axis("ms", rangemode="tozero")}
    return Chart("Step time", "", {"data": lines, "layout": layout}).figure()
