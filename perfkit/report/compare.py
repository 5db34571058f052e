"""The tables that set several runs side by side."""

from statistics import median

from perfkit.model import CATEGORIES, Bound, Category, DataLoading, Report, RunReport
from perfkit.report import sums
from perfkit.report.across import efficiency
from perfkit.report.document import Cell, Column, Table
from perfkit.report.facts import input_of
from perfkit.report.scaling import scaling
from perfkit.report.tables import SHORT
from perfkit.units import NONE, duration, plain, rate, share, shares

_LIMITS: dict[Bound, Category] = {
    "compute": "compute",
    "communication": "communication",
    "imbalance": "communication",
    "input": "data_loading",
    "memcpy": "memcpy",
    "host": "overhead",
}
"""The category in which a verdict shows: the others wait for a slow rank in their collectives."""


def comparison(report: Report) -> list[Table]:
    """Return the tables that compare runs; none for a single run."""
    runs = report.runs
    if len(runs) < 2:
        return []
    found = report.scaling
    # A series has a table of its own, with a column a world size; so has the axis of input sources.
    in_series = found is not None and any(point.factors for series in found.series for point in series.points)
    by_source = found is not None and any(axis.option == "source" for axis in found.axes)
    tables = [_steps(runs), None if in_series else efficiency(runs), *([] if by_source else _input(runs))]
    return [*(table for table in tables if table), *(scaling(found) if found else [])]


def _steps(runs: list[RunReport]) -> Table:
    return Table(
        "Runs: median step of the slowest rank, and mean exposed shares",
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
        Column("of file"),
    )
    remark = (
        "× memory: median load against that of the runs of the same configuration from memory (their median); "
        f"{NONE} where there is none. of file: a rank's rate against plain sequential reads of the file after the run"
    )
    return [Table("Runs: the input", columns, rows, remark)]


def _input_row(run: RunReport, loads: DataLoading, runs: list[RunReport]) -> tuple[Cell, ...]:
    ratio = load_ratio(run, runs)
    return (
        Cell(plain(run.run)),
        Cell(input_of(run) if run.source else plain(loads.source or NONE)),
        Cell(duration(loads.median_ns)),
        Cell(duration(loads.max_ns)),
        Cell(NONE if ratio is None else f"{ratio:.2f}"),
        Cell(rate(loads.read_bytes_per_s, "B")),
        Cell(share(loads.file_share)),
    )


def load_ratio(run: RunReport, runs: list[RunReport]) -> float | None:
    """Return the run's median load against that of the same configuration from memory.

    Of several such runs their median counts; None where there is none.
    """
    from_memory = [
        other.data_loading.median_ns
        for other in runs
        if other.data_loading is not None and other.source == "memory" and _comparable(run, other)
    ]
    baseline = median(from_memory) if from_memory else 0
    return run.data_loading.median_ns / baseline if run.data_loading is not None and baseline else None


_INPUT = ("source", "read", "data_dir", "num_workers", "prefetch", "pin_memory", "worker_start")
_MAY_DIFFER = {*_INPUT, "hdf5_chunk", "hdf5_compression", "trace_dir", "name", "config", "timeout", "steps", "schedule"}
"""Options that say where the input comes from, or that do not touch it."""


def _comparable(one: RunReport, other: RunReport) -> bool:
    """Say whether two runs are the same but for their input."""
    if (
        (one.workload, one.world_size) != (other.workload, other.world_size)
        or one.config is None
        or other.config is None
    ):
        return False
    names = (one.config.keys() | other.config.keys()) - _MAY_DIFFER
    return all(one.config.get(name) == other.config.get(name) for name in names)
