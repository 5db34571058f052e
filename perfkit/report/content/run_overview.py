"""The tables that compare several runs."""

from perfkit.base.formatting import duration, format_percent, format_percents, rate
from perfkit.records.aggregate import common_kind, step_time_ns, steps_ns
from perfkit.records.common import CATEGORIES, Category
from perfkit.records.report import Report
from perfkit.records.run import Bound, RunReport
from perfkit.report.content.breakdown import efficiency
from perfkit.report.content.options import strategies
from perfkit.report.content.run_facts import input_of
from perfkit.report.content.scaling import fits, scaling
from perfkit.tables import aggregates as sums
from perfkit.tables.labels import SHORT
from perfkit.tables.specification import Cell, Field, Table, make_table, number, words

_LIMITS: dict[Bound, Category] = {
    "compute": "compute",
    "communication": "communication",
    "imbalance": "communication",
    "bubble": "communication",
    "input": "data_loading",
    "memcpy": "memcpy",
    "host": "overhead",
}
"""The category that a verdict highlights, else the largest loss; with an imbalance, the other ranks wait in their
collectives; a bubble is part of communication."""


def comparison(report: Report) -> list[Table]:
    """Return the tables that compare runs; none for a single run."""
    runs = report.runs
    if len(runs) < 2:
        return []
    multi_run = report.multi_run
    # A scaling series has its own efficiency table, and a comparison by source its own input table.
    in_series = multi_run is not None and any(point.factors for series in multi_run.series for point in series.points)
    by_source = multi_run is not None and any(one.option == "source" for one in multi_run.option_comparisons)
    tables = [steps_table(runs), None if in_series else efficiency(runs), None if by_source else _input(runs)]
    several = [*strategies(multi_run.strategy_comparisons), *scaling(multi_run)] if multi_run else []
    return [*(fits(multi_run) if multi_run else ()), *(table for table in tables if table), *several]


def steps_table(runs: list[RunReport]) -> Table | None:
    """Return the step time of each run and where it goes."""
    plain = common_kind(runs) == "plain"
    columns = (
        words("run", lambda run: run.run),
        number("ranks", _seen),
        *([number("step", lambda run: step_time_ns(steps_ns(run, "plain")), duration)] if plain else []),
        number("profiled step", sums.step_time, duration),
        *(_share(category) for category in CATEGORIES),
    )
    remark = "step: without the profiler; profiled step and shares: recorded steps" if plain else ""
    return make_table("Runs (mean over steps of the slowest rank; mean exposed shares)", runs, columns, remark)


def _seen(run: RunReport) -> str:
    whole = len(run.ranks) == run.world_size
    return f"{len(run.ranks)}" if whole else f"{len(run.ranks)}/{run.world_size}"


def _share(category: Category) -> Field:
    def cell(run: RunReport) -> Cell:
        part = format_percents(sums.exposed_sums(sums.steps_of(run)))[CATEGORIES.index(category)]
        is_limit = category == _LIMITS.get(run.verdict.bound)
        return Cell(part, tone="strong" if is_limit else "plain")

    return number(SHORT[category], cell)


def _input(runs: list[RunReport]) -> Table | None:
    columns = (
        words("run", lambda run: run.run),
        words("source", input_of),
        number("median load", lambda run: run.data_loading.median_ns, duration),
        number("largest", lambda run: run.data_loading.max_ns, duration),
        number("read", lambda run: rate(run.data_loading.read_bytes_per_s, "B")),
        number("% of file", lambda run: run.data_loading.file_share, format_percent),
    )
    remark = "% of file: per-rank read rate relative to the file's bandwidth (sequential reads after the run)"
    known = [run for run in runs if run.data_loading and run.data_loading.count]
    return make_table("Runs: input", known, columns, remark)
