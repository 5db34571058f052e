"""The tables that compare several runs."""

from perfkit.report.content import aggregates as sums
from perfkit.report.content.cross_rank import efficiency
from perfkit.report.content.document import Cell, Column, Table
from perfkit.report.content.run_facts import input_of
from perfkit.report.content.run_tables import SHORT
from perfkit.report.content.several_runs.scaling import scaling
from perfkit.report.content.several_runs.strategies import strategies
from perfkit.schema.aggregate import common_kind, step_time_ns, steps_ns
from perfkit.schema.common import CATEGORIES, Category
from perfkit.schema.report import Report
from perfkit.schema.run import Bound, DataLoading, RunReport
from perfkit.util.formatting import duration, escape_unprintable, format_percent, format_percents, rate

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
    tables = [steps_table(runs), None if in_series else efficiency(runs), *([] if by_source else _input(runs))]
    several = [*strategies(multi_run.strategy_comparisons), *scaling(multi_run)] if multi_run else []
    return [*(table for table in tables if table), *several]


def steps_table(runs: list[RunReport]) -> Table:
    """Return the step time of each run and where it goes."""
    plain = common_kind(runs) == "plain"
    return Table(
        "Runs (median over steps of the slowest rank; mean exposed shares)",
        (
            Column("run", "words"),
            Column("ranks"),
            *((Column("step"),) if plain else ()),
            Column("profiled step"),
            *(Column(short) for short in SHORT.values()),
        ),
        [_step_row(run, plain) for run in runs],
        "step: without the profiler; profiled step and shares: recorded steps" if plain else "",
    )


def _step_row(run: RunReport, plain: bool) -> tuple[Cell, ...]:
    seen = str(len(run.ranks))
    whole = len(run.ranks) == run.world_size
    parts = format_percents(sums.exposed_sums(sums.steps_of(run)))
    strong = _LIMITS.get(run.verdict.bound, run.verdict.largest_loss)
    return (
        Cell(escape_unprintable(run.run)),
        Cell(seen if whole else f"{seen}/{run.world_size}"),
        *((Cell(duration(step_time_ns(steps_ns(run, "plain")))),) if plain else ()),
        Cell(duration(sums.step_time(run))),
        *(
            Cell(part, tone="strong" if category == strong else "plain")
            for category, part in zip(CATEGORIES, parts, strict=True)
        ),
    )


def _input(runs: list[RunReport]) -> list[Table]:
    rows = [_input_row(run, run.data_loading) for run in runs if run.data_loading and run.data_loading.count]
    if not rows:
        return []
    columns = (
        Column("run", "words"),
        Column("source", "words"),
        Column("median load"),
        Column("largest"),
        Column("read"),
        Column("% of file"),
    )
    remark = "% of file: per-rank read rate relative to the file's bandwidth (sequential reads after the run)"
    return [Table("Runs: input", columns, rows, remark)]


def _input_row(run: RunReport, loads: DataLoading) -> tuple[Cell, ...]:
    return (
        Cell(escape_unprintable(run.run)),
        Cell(input_of(run)),
        Cell(duration(loads.median_ns)),
        Cell(duration(loads.max_ns)),
        Cell(rate(loads.read_bytes_per_s, "B")),
        Cell(format_percent(loads.file_share)),
    )
