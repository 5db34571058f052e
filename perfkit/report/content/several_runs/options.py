"""The tables of otherwise identical runs that differ in one option."""

from collections.abc import Sequence

from perfkit.report.content.document import Cell, Column, Table
from perfkit.report.content.several_runs.estimates import (
    estimated,
    interval_method,
    measured_steps,
    two_decimals,
    whole_rate,
)
from perfkit.schema.config_identity import is_input_option
from perfkit.schema.scaling import OptionComparison, OptionRow
from perfkit.util.formatting import MISSING, duration, escape_unprintable, format_percent, rate


def option_tables(option: str, comparisons: Sequence[OptionComparison]) -> list[Table]:
    """Return the tables of one option: steps first, then input and read bandwidth where the option is one of input."""
    rows = [(comparison, row) for comparison in comparisons for row in comparison.rows]
    times = [row.step_time for _, row in rows]
    names = {comparison.name for comparison in comparisons}
    alike = f" ({escape_unprintable(names.pop())})" if len(names) == 1 else ""
    shared = (
        *(() if alike else (Column("runs", "words"),)),
        Column("ranks"),
        Column(escape_unprintable(option), "words"),
    )
    steps = Table(
        f"By {escape_unprintable(option)}: otherwise identical runs{alike}",
        (
            *shared,
            Column("n"),
            Column("step"),
            Column("samples/s"),
            Column("efficiency"),
            Column("vs. baseline"),
        ),
        [(*_shared(comparison, row, bool(alike)), *_option_row(row)) for comparison, row in rows],
        f"step: {measured_steps(times)}; vs. baseline: step time relative to the first row; {interval_method(times)}"
        f"{_samples_differ(comparisons)}",
    )
    if not is_input_option(option) or all(row.load_median_ns is None for _, row in rows):
        return [steps]
    loads = [(*_shared(comparison, row, bool(alike)), *_loads_row(row)) for comparison, row in rows]
    rates = [(*_shared(comparison, row, bool(alike)), *_rates_row(row)) for comparison, row in rows]
    read = any(row.read_bytes_per_s is not None or row.file_bytes_per_s is not None for _, row in rows)
    return [
        steps,
        _loads(f"By {escape_unprintable(option)}: input{alike}", shared, loads),
        *([_rates(f"By {escape_unprintable(option)}: read bandwidth{alike}", shared, rates)] if read else []),
    ]


def _samples_differ(comparisons: Sequence[OptionComparison]) -> str:
    """Return a remark if compared steps have different numbers of samples, so that their times are not comparable."""
    each = ({row.step_time.samples_per_step for row in comparison.rows} for comparison in comparisons)
    return "; steps have different numbers of samples: compare samples/s" if any(len(one) > 1 for one in each) else ""


def _shared(comparison: OptionComparison, row: OptionRow, alike: bool) -> tuple[Cell, ...]:
    name = () if alike else (Cell(escape_unprintable(comparison.name)),)
    return *name, Cell(str(comparison.world_size)), Cell(escape_unprintable(row.value))


def _option_row(row: OptionRow) -> tuple[Cell, ...]:
    return (
        Cell(str(len(row.step_time.runs))),
        estimated(row.step_time.step_ns, duration),
        estimated(row.step_time.samples_per_s, whole_rate),
        Cell(format_percent(row.efficiency)),
        estimated(row.ratio, two_decimals) if row.ratio else Cell("1"),
    )


def _loads(title: str, shared: tuple[Column, ...], rows: Sequence[tuple[Cell, ...]]) -> Table:
    own = ("median load", "largest", "% of step", "vs. memory")
    remark = "% of step: exposed; vs. memory: median load relative to loads from memory"
    return Table(title, (*shared, *map(Column, own)), rows, remark)


def _loads_row(row: OptionRow) -> tuple[Cell, ...]:
    return (
        Cell(duration(row.load_median_ns)),
        Cell(duration(row.load_max_ns)),
        Cell(format_percent(row.exposed_share)),
        Cell(MISSING if row.load_ratio is None else f"{row.load_ratio:.2f}"),
    )


def _rates(title: str, shared: tuple[Column, ...], rows: Sequence[tuple[Cell, ...]]) -> Table:
    own = ("read", "% of in-memory", "file bandwidth", "in cache", "% of file")
    remark = (
        "read: all ranks together, while waiting for samples; % of in-memory: relative to reading from memory; file "
        "bandwidth: sequential reads by one process after the run; in cache: share of the file in the page cache then; "
        "% of file: per-rank rate relative to the file bandwidth"
    )
    return Table(title, (*shared, *map(Column, own)), rows, remark)


def _rates_row(row: OptionRow) -> tuple[Cell, ...]:
    return (
        Cell(rate(row.read_bytes_per_s, "B")),
        Cell(format_percent(row.memory_share)),
        Cell(rate(row.file_bytes_per_s, "B")),
        Cell(format_percent(row.file_cached_share)),
        Cell(format_percent(row.file_share)),
    )
