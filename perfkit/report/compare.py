"""The tables that set several runs side by side."""

from statistics import median

from perfkit.model import CATEGORIES, Bound, Category, DataLoading, RunReport
from perfkit.report import sums
from perfkit.report.document import Cell, Column, Table
from perfkit.report.tables import SHORT
from perfkit.units import NONE, duration, plain, shares, size

_LIMITS: dict[Bound, Category] = {
    "compute": "compute",
    "communication": "communication",
    "imbalance": "communication",
    "input": "data_loading",
    "memcpy": "memcpy",
    "host": "overhead",
}
"""The category in which a verdict shows: the others wait for a slow rank in their collectives."""


def comparison(runs: list[RunReport]) -> list[Table]:
    """Return the tables that compare runs; none for a single run."""
    if len(runs) < 2:
        return []
    return [_steps(runs), *_input(runs)]


def _steps(runs: list[RunReport]) -> Table:
    return Table(
        "Runs: median step on the slowest rank, and its exposed shares",
        (
            Column("run", "words"),
            Column("ranks"),
            Column("step"),
            *(Column(short) for short in SHORT.values()),
        ),
        [_step_row(run) for run in runs],
    )


def _step_row(run: RunReport) -> tuple[Cell, ...]:
    seen = str(len(run.ranks))
    whole = len(run.ranks) == run.world_size
    parts = shares(sums.exposed_sums(sums.steps_of(run)))
    return (
        Cell(plain(run.run)),
        Cell(seen if whole else f"{seen}/{run.world_size}"),
        Cell(duration(sums.step_time(run))),
        *(
            Cell(part, tone="strong" if _LIMITS.get(run.verdict.bound) == category else "plain")
            for category, part in zip(CATEGORIES, parts, strict=True)
        ),
    )


def _input(runs: list[RunReport]) -> list[Table]:
    rows = [_input_row(run, run.data_loading, runs) for run in runs if run.data_loading and run.data_loading.count]
    if not rows:
        return []
    columns = (
        Column("run", "words"),
        Column("source", "words"),
        Column("median load"),
        Column("largest"),
        Column("× memory"),
        Column("read"),
    )
    remark = "× memory: median load against the run of the same workload and ranks from memory"
    return [Table("Runs: the input", columns, rows, remark)]


def _input_row(run: RunReport, loads: DataLoading, runs: list[RunReport]) -> tuple[Cell, ...]:
    ratio = load_ratio(run, runs)
    read = loads.read_bytes_per_s
    return (
        Cell(plain(run.run)),
        Cell(plain(loads.source or run.source or NONE)),
        Cell(duration(loads.median_ns)),
        Cell(duration(loads.max_ns)),
        Cell(NONE if ratio is None else f"{ratio:.2f}"),
        Cell(NONE if read is None else f"{size(read)}/s"),
    )


def load_ratio(run: RunReport, runs: list[RunReport]) -> float | None:
    """Return the run's median load against that of the same workload on as many ranks from memory.

    Of several such runs their median counts; None where there is none.
    """
    from_memory = [
        other.data_loading.median_ns
        for other in runs
        if other.data_loading is not None
        and other.data_loading.count
        and other.source == "memory"
        and (other.workload, other.world_size) == (run.workload, run.world_size)
    ]
    if run.workload is None or run.data_loading is None or not from_memory:
        return None
    baseline_ns = median(from_memory)
    return run.data_loading.median_ns / baseline_ns if baseline_ns else None
