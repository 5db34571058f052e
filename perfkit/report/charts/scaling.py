"""The charts of scaling series, each with a question: where the step goes, where points were lost, what comes next."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from perfkit.base.formatting import escape_unprintable, plural
from perfkit.options.identity import short_name
from perfkit.records.scaling import Estimate, ScalingPoint, ScalingSeries
from perfkit.report.content.scaling import Lost, lost_points
from perfkit.report.wording.ledger import LABELS
from perfkit.subjects.scaling.shares import PLAUSIBLE_EFFICIENCY
from perfkit.tables.charts import Chart, Spec, as_html, axis, bars, line, style
from perfkit.tables.kernel_names import shorten
from perfkit.tables.labels import COLOURS, HUES, MAX_RANKS, PATTERNS

_LONGEST: Final = 24
"""Characters of what tells series apart, below a bar."""
_FEW: Final = 8
"""Bars whose labels fit into half of a page."""
_INK: Final = "#000000"
_ROOM: Final = 1.18
"""Height of the axis in the highest bar, so that there is room for its label."""


def pictures(series: Sequence[ScalingSeries]) -> list[Chart]:
    """Return where the step goes by ranks: series of one kind, workload and batch side by side in the same axes."""
    groups = _beside(series)
    return [_steps(one, alone=len(groups) == 1) for one in groups]


def waterfalls(series: Sequence[ScalingSeries]) -> list[Chart]:
    """Return where each series lost points of efficiency, from one number of ranks to the next."""
    found = [one for one in series if lost_points(one)]
    return [_lost(one, alone=len(found) == 1) for one in found]


def throughputs(series: Sequence[ScalingSeries]) -> list[Chart]:
    """Return throughput against ranks with the forecasts, series beside each other likewise."""
    return [chart for one in _beside(series) if (chart := _throughput(one))]


def _beside(series: Sequence[ScalingSeries]) -> list[list[ScalingSeries]]:
    """Return the series that share axes; as many bars as there may be rows in a table of ranks."""
    groups: dict[tuple[object, ...], list[ScalingSeries]] = defaultdict(list)
    for one in series:
        groups[(one.workload, one.kind, one.batch_size)].append(one)
    found: list[list[ScalingSeries]] = []
    for group in groups.values():
        fits = sum(len(one.points) for one in group) <= MAX_RANKS
        found += [group] if fits else [[one] for one in group]
    return found


def _title(question: str, group: Sequence[ScalingSeries]) -> str:
    first = group[0]
    if len(group) == 1:
        return f"{question}: {escape_unprintable(first.name)}"
    batch = "over all ranks" if first.kind == "strong" else "per rank"
    return f"{question}: {escape_unprintable(first.workload)} {first.kind}, batch {first.batch_size} {batch}"


def _variant(series: ScalingSeries) -> str:
    return as_html(shorten(", ".join(short_name(*option) for option in series.varies.items()), _LONGEST))


# ---- where the step goes ---------------------------------------------------------------------------------------------


class _Bar(NamedTuple):
    """A point of a series, at its place on the axis."""

    label: str
    series: ScalingSeries
    of: ScalingPoint

    @property
    def ideal_ms(self) -> float | None:
        """The step of ideal scaling, from the smallest world size; None of that one."""
        first = self.series.points[0]
        if self.of is first:
            return None
        work = 1 if self.series.kind == "weak" else first.world_size / self.of.world_size
        return first.step_time.step_ns.value * work / 1e6

    def part_ms(self, cause: str) -> float:
        """Return how long a part takes."""
        return sum(part.ns for part in self.of.parts if part.cause == cause) / 1e6


def _placed(group: Sequence[ScalingSeries]) -> list[_Bar | None]:
    """Return the bars by ranks, then by series; None between the ranks of several series."""
    places: list[_Bar | None] = []
    for size in sorted({point.world_size for one in group for point in one.points}):
        ranks = plural(size, "rank")
        places += [None] * (len(group) > 1 and bool(places))
        places += [
            _Bar(ranks if len(group) == 1 else f"{_variant(one)}<br>{ranks}", one, point)
            for one in group
            for point in one.points
            if point.world_size == size
        ]
    return places


def _steps(group: Sequence[ScalingSeries], *, alone: bool) -> Chart:
    places = _placed(group)
    plain = [bar.label if bar else " " * place for place, bar in enumerate(places)]
    # Series of other layouts may have the same name: an axis has each once.
    x = [label + "\u200b" * plain[:place].count(label) for place, label in enumerate(plain)]

    def of_bars(value: Callable[[_Bar], float | None]) -> list[float | None]:
        found = [value(bar) if bar else None for bar in places]
        return [None if one is None else round(one, 6) for one in found]

    steps = [bar.of.step_time.step_ns if bar else None for bar in places]
    tops = of_bars(
        lambda bar: max(bar.of.step_time.step_ns.value, *(bar.of.step_time.step_ns.interval or (0, 0))) / 1e6
    )
    ideal = of_bars(lambda bar: bar.ideal_ms)
    marks = [
        line("ideal", x, ideal, _of_step("ideal"))
        | {"mode": "markers", "marker": {"symbol": "line-ew", "size": 44, "color": _INK, "line": {"width": 3}}},
        *_whiskers(x, steps),
        {"type": "scatter", "mode": "text", "name": "efficiency", "x": x, "y": tops}
        | {"text": [_efficiency(bar) for bar in places], "textposition": "top center"}
        | {"hoverinfo": "skip", "showlegend": False},
    ]
    highest = max(top for top in (*tops, *ideal) if top is not None)
    layout = {"barmode": "stack", "legend": {"y": -0.25, "traceorder": "normal"}}
    layout |= {
        "xaxis": axis("", type="category"),
        "yaxis": axis("ms per step; above each bar its efficiency", range=[0, _ROOM * highest]),
    }
    answer = escape_unprintable(group[0].sentence) if len(group) == 1 else ""
    shared = " Ranks that share cores have no efficiency." * any(bar and bar.of.oversubscribed for bar in places)
    note = f"The line is the step of ideal scaling.{_of_whiskers(group)}{shared}"
    data = [*_parts(x, of_bars, [bar for bar in places if bar]), *marks]
    title, narrow = _title("Where the step goes", group), not alone and len(x) <= _FEW
    return Chart(title, note, {"data": data, "layout": layout}, is_narrow=narrow, answer=answer)


def _parts(
    x: Sequence[str], of_bars: Callable[[Callable[[_Bar], float | None]], list[float | None]], known: Sequence[_Bar]
) -> list[Spec]:
    """Return the bars by part of the step; without the ledgers of all runs the whole step."""
    if not all(bar.of.parts for bar in known):
        whole = of_bars(lambda bar: bar.of.step_time.step_ns.value / 1e6)
        return [bars("step", x, whole, COLOURS["other"], "", _of_step("step"))]
    longest = {part.cause: 0.0 for bar in known for part in bar.of.parts}
    longest = {cause: max(bar.part_ms(cause) for bar in known) for cause in longest}
    order = sorted(longest, key=lambda cause: (cause != "compute", -longest[cause]))
    rows = [(cause, of_bars(lambda bar, cause=cause: bar.part_ms(cause))) for cause in order]  # type: ignore[misc]
    return [
        bars(LABELS[cause], x, row, COLOURS[cause], PATTERNS.get(cause, ""), _of_step(LABELS[cause]))
        for cause, row in rows
    ]


def _efficiency(bar: _Bar | None) -> str:
    """Return the label of a bar: nothing where efficiency is no measure of scaling."""
    if bar is None or bar.of is bar.series.points[0] or bar.of.efficiency.value > PLAUSIBLE_EFFICIENCY:
        return ""
    return "" if bar.of.oversubscribed else f"{100 * bar.of.efficiency.value:.0f} %"


def _whiskers(x: Sequence[str], steps: Sequence[Estimate | None]) -> list[Spec]:
    intervals = [(one.interval[0] / 1e6, one.interval[1] / 1e6) if one and one.interval else None for one in steps]
    if not any(intervals):
        return []
    values = [one.value / 1e6 if one else None for one in steps]
    invisible = {"mode": "markers", "marker": {"size": 0, "color": _INK}, "showlegend": False, "hoverinfo": "skip"}
    return [line("interval", x, values, "", intervals) | invisible]


def _of_whiskers(group: Sequence[ScalingSeries]) -> str:
    """Return what the whiskers are; empty without them."""
    kinds = {point.step_time.resampled for one in group for point in one.points if point.step_time.step_ns.interval}
    if not kinds:
        return ""
    if kinds == {"runs"}:
        return " Whiskers: 95 % intervals."
    return (
        " Whiskers: 95 % intervals, below three runs only the spread over steps, which does not show how runs differ."
    )


def _of_step(name: str) -> str:
    return f"%{{x}}: %{{y:.4~g}} ms<extra>{name}</extra>"


# ---- where points were lost ------------------------------------------------------------------------------------------


def _lost(series: ScalingSeries, *, alone: bool) -> Chart:
    """Return one row per number of ranks, and between them one per part of the step that points were lost to."""
    rows = [row for row in lost_points(series) if row.cause is None or round(row.points)]
    several = len(series.points) > 2
    labels = [_row_label(row, several=several) for row in rows]
    data = [_span(label, row) for label, row in zip(labels, rows, strict=True)]
    categories = {"type": "category", "autorange": "reversed", "categoryorder": "array", "categoryarray": labels}
    highest = max(max(row.before, row.after) for row in rows)
    lowest = min(0.0, *(row.after for row in rows))
    layout = {
        "barmode": "overlay",
        "showlegend": False,
        "xaxis": axis("efficiency, %", range=[lowest, 1.1 * _ROOM * highest], tickvals=list(range(0, 101, 20))),
        "yaxis": axis("", **categories),
    }
    title = f"Where points were lost: {escape_unprintable(series.name)}"
    note = "Points: percent of the real step."
    answer = escape_unprintable(series.sentence) if alone else ""
    return Chart(title, note, {"data": data, "layout": layout}, is_narrow=not alone, answer=answer)


def _row_label(row: Lost, *, several: bool) -> str:
    if row.cause is None:
        return plural(row.to_size, "rank")
    return f"{row.from_size} \u2192 {row.to_size}: {row.label}" if several else row.label


def _span(label: str, row: Lost) -> Spec:
    """Return the bar of a row: of what is left the whole, of a part from what was left to what is left."""
    if row.cause is None:
        base, length, text, look = 0.0, row.after, f"{row.after:.0f} %", ("other", "")
    else:
        base, length = min(row.before, row.after), abs(row.points)
        text, look = f"{-row.points:+.0f}".replace("-", "\u2212"), (row.cause, PATTERNS.get(row.cause, ""))
    hover = f"%{{y}}: {text}<extra></extra>"
    drawn = bars(row.label, [round(length, 4)], [label], COLOURS[look[0]], look[1], hover)
    return drawn | {"orientation": "h", "base": [round(base, 4)], "text": [text], "textposition": "outside"}


# ---- throughput ------------------------------------------------------------------------------------------------------


def _throughput(group: Sequence[ScalingSeries]) -> Chart | None:
    known = [one for one in group if len(_rates(one)) > 1]
    if not known:
        return None
    data = [drawn for place, one in enumerate(known) for drawn in _lines(place, one, _variant(one), len(known) > 1)]
    sizes = sorted({size for one in data for size in one["x"]})
    layout = {
        "legend": {"y": -0.25},
        "xaxis": axis("ranks", type="log", tickvals=sizes, ticktext=[str(size) for size in sizes]),
        "yaxis": axis("samples/s", type="log"),
    }
    note = f"Both axes are logarithmic.{_of_whiskers(known)}"
    return Chart(_title("Throughput against ranks", group), note, {"data": data, "layout": layout}, is_narrow=True)


def _rates(series: ScalingSeries) -> list[tuple[int, Estimate]]:
    points = [(point.world_size, point.step_time.samples_per_s) for point in series.points]
    return [(size, estimate) for size, estimate in points if estimate is not None]


def _lines(place: int, series: ScalingSeries, name: str, several: bool) -> Iterator[Spec]:
    """Yield what was measured, what is forecast, and ideal scaling."""
    measured, look = _rates(series), style(place)
    forecast = [(one.world_size, one.samples_per_s) for one in series.forecasts if one.samples_per_s is not None]
    prefix = f"{name}, " if several else ""
    marker = look["marker"] | {"size": 8}
    yield _line(f"{prefix}measured", measured, look["line"] | {"dash": "solid"}, marker)
    if forecast:
        open_marker = marker | {"symbol": "diamond-open"}
        yield _line(f"{prefix}forecast by the USL", forecast, look["line"] | {"dash": "dot"}, open_marker)
    least, base = measured[0]
    sizes = [size for size, _ in (*measured, *forecast)]
    rates = [round(base.value * size / least, 3) for size in sizes]
    ideal = {"mode": "lines", "line": {"color": HUES[-1], "dash": "dash"}, "hoverinfo": "skip"}
    yield line(f"{prefix}ideal", sizes, rates, "") | ideal


def _line(name: str, points: Sequence[tuple[int, Estimate]], dashes: dict[str, Any], marker: dict[str, Any]) -> Spec:
    sizes, estimates = [size for size, _ in points], [estimate for _, estimate in points]
    rates = [round(estimate.value, 3) for estimate in estimates]
    hover = f"ranks %{{x}}: %{{y:.6~g}} samples/s<extra>{name}</extra>"
    return line(name, sizes, rates, hover, [estimate.interval for estimate in estimates]) | {
        "line": dashes,
        "marker": marker,
    }
