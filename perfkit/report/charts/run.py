"""The charts of a run. Every chart answers a question, and a table of the report has the same numbers."""

from collections import Counter
from collections.abc import Callable
from statistics import fmean
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from perfkit.base.formatting import escape_unprintable, in_ms
from perfkit.errors import UsageError
from perfkit.records.aggregate import mean_own_step_ns
from perfkit.records.common import CATEGORIES
from perfkit.records.cross_rank import BandwidthFit, MatchedCollectiveStat
from perfkit.records.per_rank.memory import MEMORY_CATEGORIES, MEMORY_WORDS
from perfkit.records.rank import MemoryUse, RankReport, StepBreakdown
from perfkit.records.report import Report
from perfkit.records.run import RunReport
from perfkit.report.charts.path import path_chart
from perfkit.report.charts.roofline import roofline_chart
from perfkit.report.charts.scaling import series_charts
from perfkit.report.charts.specs import (
    Bars,
    Chart,
    PageCharts,
    bandwidths,
    heat_map,
    levels,
    stacked_bars,
    stacked_levels,
)
from perfkit.report.charts.whole_run import whole_run_chart
from perfkit.subjects.memory.tables import highest_use
from perfkit.tables import aggregates
from perfkit.tables.labels import LONG, rank_label, rank_labels, step_label

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

MOST_CELLS: Final = 20_000
"""In the heat map; beyond that, only the ranks that take longest without communication are shown."""
_MOST_BARS: Final = 256
_MOST_LINES: Final = 5
_NEAR_THE_LIMIT: Final = 0.25


def page_charts(report: Report) -> PageCharts:
    """Return the charts of a report's page."""
    series = report.multi_run.series if report.multi_run else []
    return PageCharts(series_charts(series), [_beside_explorer(run) for run in report.runs])


def _beside_explorer(run: RunReport) -> list[Chart]:
    """Return the charts of a run but for the map of ranks and steps, which the page has as cells to choose from."""
    return [found for name in CHARTS if name != "heat_map" and (found := chart(run, name))]


def plot(record: Report | RunReport, name: "ChartName") -> "Figure":
    """Return the chart `name` of a run as a plotly figure.

    Raises:
        UsageError: the run has no such chart, or there are several runs.
    """
    run = _only(record) if isinstance(record, Report) else record
    drawn = chart(run, name)
    if drawn is None:
        raise UsageError(f"{run.run}: {CHARTS[name].needs}")
    return drawn.figure()


def _only(report: Report) -> RunReport:
    if len(report.runs) == 1:
        return report.runs[0]
    raise UsageError(f"the report has {len(report.runs)} runs: plot one of them, such as report.runs[0]")


def run_charts(run: RunReport) -> list[Chart]:
    """Return the charts of a run, in order; without steps only that of the monitor's logs."""
    return [found for name in CHARTS if (found := chart(run, name))]


def _longest(ranks: list[RankReport], most: int) -> tuple[list[RankReport], str]:
    """Return the `most` ranks that take longest without communication, in order, and a note if others are left out.

    The whole step tells little: ranks that wait for each other take equally long.
    """
    if len(ranks) <= most:
        return ranks, ""
    kept = {id(rank) for rank in sorted(ranks, key=mean_own_step_ns, reverse=True)[:most]}
    note = f"The {most} of {len(ranks)} ranks that take longest without communication."
    return [rank for rank in ranks if id(rank) in kept], note


def _by_rank(ranks: list[RankReport]) -> Chart | None:
    if len(ranks) < 2:
        return None
    shown, note = _longest(ranks, _MOST_BARS)
    means = [[ns / len(rank.steps) for ns in aggregates.exposed_sums(rank.steps)] for rank in shown]
    series = [Bars(name, LONG[name], [in_ms(mean[i]) for mean in means]) for i, name in enumerate(CATEGORIES)]
    labels = rank_labels(shown)
    return stacked_bars("Mean profiled step per rank", labels, series, label="rank", note=note)


def _by_step(ranks: list[RankReport]) -> Chart | None:
    by_step = _steps(ranks)
    if len(by_step) < 2:
        return None
    series = [
        Bars(name, LONG[name], [in_ms(fmean(getattr(s.exposed_ns, name) for s in steps)) for steps in by_step.values()])
        for name in CATEGORIES
    ]
    title = "Time per profiled step" + (", mean over ranks" if len(ranks) > 1 else "")
    return stacked_bars(title, [step_label(number) for number in by_step], series, label="step")


def _steps(ranks: list[RankReport]) -> dict[int | None, list[StepBreakdown]]:
    numbers = sorted(
        {step.step for rank in ranks for step in rank.steps}, key=lambda number: (number is None, number or 0)
    )
    by_step: dict[int | None, list[StepBreakdown]] = {number: [] for number in numbers}
    for rank in ranks:
        for step in rank.steps:
            by_step[step.step].append(step)
    return by_step


def _heat_map(ranks: list[RankReport]) -> Chart | None:
    numbers = list(_steps(ranks))
    if len(ranks) < 2 or len(numbers) < 2:
        return None
    shown, note = _longest(ranks, max(1, MOST_CELLS // len(numbers)))
    tables = [{step.step: step for step in rank.steps} for rank in shown]

    def cells(category: str | None) -> list[list[float | None]]:
        return [
            [
                None
                if (step := table.get(number)) is None
                else in_ms(getattr(step.exposed_ns, category) if category else step.wall_ns)
                for number in numbers
            ]
            for table in tables
        ]

    layers = [("whole step", cells(None)), *((LONG[category], cells(category)) for category in CATEGORIES)]
    steps, names = [step_label(number) for number in numbers], rank_labels(shown)
    return heat_map("Every profiled step of every rank", steps, names, layers, note=note)


def _waiting(run: RunReport) -> Chart | None:
    """Return wait and transfer time per rank: the rank that waits least is the one the others wait for."""
    waits = run.cross_rank.rank_waits if run.cross_rank and run.cross_rank.waits_known else []
    if len(waits) < 2:
        return None
    steps = {rank.rank: len(rank.steps) or 1 for rank in run.ranks}
    shown = sorted(sorted(waits, key=lambda wait: wait.wait_ns)[:_MOST_BARS], key=lambda wait: wait.rank)
    series = [
        Bars(part, part, [in_ms(getattr(wait, f"{part}_ns") / steps.get(wait.rank, 1)) for wait in shown])
        for part in ("transfer", "wait")
    ]
    return stacked_bars(
        "Wait and transfer in collectives, per rank and step",
        [rank_label(wait.rank) for wait in shown],
        series,
        label="rank",
        y="ms, exposed or overlapped",
        note=f"The {len(shown)} of {len(waits)} ranks that wait least." if len(shown) < len(waits) else "",
    )


def _bandwidth(run: RunReport) -> Chart | None:
    """Return bandwidth against size, one series per operator and group, with its fit."""
    rows = [row for row in run.cross_rank.collectives if row.busbw and row.bytes] if run.cross_rank else []
    if run.cross_rank is None or len({row.bytes for row in rows}) < 2:
        return None
    groups: dict[tuple[str, str | None, int | None], list[MatchedCollectiveStat]] = {}
    for row in sorted(rows, key=lambda row: row.bytes or 0):
        groups.setdefault((row.operator, row.group, row.group_size), []).append(row)
    counts = Counter((operator, size) for operator, _, size in groups)
    fits = {(fit.operator, fit.group, fit.group_size): fit for fit in run.cross_rank.bandwidth_fits}
    series = [
        (
            _series_name(*key, unique=counts[key[0], key[2]] == 1),
            [row.bytes or 0 for row in group],
            [row.busbw or 0 for row in group],
            _fitted(fits.get(key), group),
        )
        for key, group in groups.items()
    ]
    note = "Lines: fitted latency and bandwidth." if any(fit.alpha_ns is not None for fit in fits.values()) else ""
    return bandwidths("Bandwidth of collectives by size", series, note=note)


def _series_name(operator: str, group: str | None, size: int | None, *, unique: bool) -> str:
    """Return an operator with the size of its group, and with the group's name where others have the same."""
    name = "" if unique or group is None else f", {group}"
    return escape_unprintable(f"{operator} \u00d7{size}{name}")


def _fitted(fit: BandwidthFit | None, rows: list[MatchedCollectiveStat]) -> list[float] | None:
    """Return the fitted busbw at each size: factor * S / (alpha + factor * S / beta)."""
    if fit is None or fit.alpha_ns is None or len(rows) < 2:
        return None
    on_bus = [(row.bytes or 0) * (row.busbw or 0) / (row.algbw or 1) for row in rows]
    times = [fit.alpha_ns + (size * 1e9 / fit.beta if fit.beta else 0) for size in on_bus]
    return [size * 1e9 / ns for size, ns in zip(on_bus, times, strict=True)] if all(times) else None


def _memory(run: RunReport) -> Chart | None:
    """Return allocated memory over the step with the highest peak, of the ranks with the highest peaks.

    In a run with accelerators only device memory is shown: that is what runs out.
    """
    uses = [(rank, use) for rank in run.ranks for use in rank.memory]
    uses = [(rank, use) for rank, use in uses if use.device != "CPU"] or uses
    if not uses:
        return None
    shown = sorted(uses, key=lambda pair: -pair[1].peak.allocated_bytes)[:_MOST_LINES]
    names, shared = _unique_names([use for _, use in shown])
    left = f"The {len(shown)} highest peaks of {len(uses)}." if len(shown) < len(uses) else ""
    limits = [use.limit_bytes for _, use in shown if use.limit_bytes]
    most = shown[0][1].peak.allocated_bytes
    return levels(
        "Memory over the step" + (", against the device's limit" if limits else ""),
        [
            (f"rank {rank_label(rank.rank)}{name}", [in_ms(ns) for ns in use.curve.at_ns], use.curve.allocated_bytes)
            for name, (rank, use) in zip(names, shown, strict=True)
        ],
        label="ms since the host began the step",
        y="allocated",
        # A limit far above the lines would flatten them.
        limit=min(limits) if limits and most >= min(limits) * _NEAR_THE_LIMIT else None,
        note=" ".join(filter(None, (shared, left))),
    )


def _memory_by_category(run: RunReport) -> Chart | None:
    """Return allocated memory by category over the step with the highest peak, of the device that has it."""
    found = highest_use(run)
    curve = found.use.curve if found else None
    if found is None or curve is None or not curve.categories:
        return None
    return stacked_levels(
        "Memory over the step, by category",
        [in_ms(ns) for ns in curve.at_ns],
        [(MEMORY_WORDS[name], curve.categories[name]) for name in MEMORY_CATEGORIES if name in curve.categories],
        label="ms since the host began the step",
        y="allocated",
        note=f"{found.name[0].upper()}{found.name[1:]}, step {step_label(curve.step)}.",
    )


def _unique_names(uses: list[MemoryUse]) -> tuple[list[str], str]:
    """Return what the lines' names need besides their rank, and what all lines have in common."""
    parts = [(use.device, f"step {step_label(use.curve.step)}") for use in uses]
    common = [names[0] for names in zip(*parts, strict=True) if len(set(names)) == 1]
    different = ["".join(f", {part}" for part in mine if part not in common) for mine in parts]
    return different, f"{', '.join(common)}." if common else ""


class RunChart(NamedTuple):
    """How a chart is built, and what a run needs to have it."""

    build: Callable[[RunReport], Chart | None]
    needs: str


def _with_steps(run: RunReport) -> list[RankReport]:
    return [rank for rank in run.ranks if rank.steps]


ChartName = Literal[
    "whole_run",
    "ranks",
    "steps",
    "heat_map",
    "critical_path",
    "waiting",
    "bandwidth",
    "memory",
    "memory_by_category",
    "roofline",
]
CHARTS: Final[dict[ChartName, RunChart]] = {
    "whole_run": RunChart(whole_run_chart, "a chart of the whole run needs logs of the monitor (`--monitor`)"),
    "ranks": RunChart(lambda run: _by_rank(_with_steps(run)), "a chart of ranks needs two or more with steps"),
    "steps": RunChart(lambda run: _by_step(_with_steps(run)), "a chart of steps needs two or more"),
    "heat_map": RunChart(lambda run: _heat_map(_with_steps(run)), "a map of ranks and steps needs two or more of both"),
    "critical_path": RunChart(
        path_chart, "a chart of the critical path needs several ranks or a device, and steps in common"
    ),
    "waiting": RunChart(_waiting, "a chart of waiting needs collectives matched across ranks"),
    "bandwidth": RunChart(
        _bandwidth, "a chart of bandwidths needs matched collectives of two or more sizes on several ranks"
    ),
    "memory": RunChart(_memory, "a chart of memory needs traces recorded with profile_memory"),
    "memory_by_category": RunChart(
        _memory_by_category, "a chart of memory by category needs traces recorded with profile_memory"
    ),
    "roofline": RunChart(
        roofline_chart, "a roofline needs traces recorded with record_shapes, and a device whose peaks are known"
    ),
}
"""The charts of a run, by name."""


def chart(run: RunReport, name: ChartName) -> Chart | None:
    """Return one chart of a run; None if it has none."""
    return CHARTS[name].build(run) if _with_steps(run) or name == "whole_run" else None
