"""The table of a run's data loading."""

from collections.abc import Iterator
from typing import Final

from perfkit.base.formatting import MISSING, duration, escape_unprintable, format_percent, rate
from perfkit.records.common import UNNAMED
from perfkit.records.manifest import FileBandwidth
from perfkit.records.run import DataLoading, RunReport
from perfkit.tables.aggregates import LOADS
from perfkit.tables.labels import LONG, counted, rank_label, step_label
from perfkit.tables.specification import (
    RANK,
    RUN,
    Cell,
    Field,
    Instance,
    Listing,
    Table,
    data,
    make_table,
    number,
    of_ranks,
    words,
)


def tables(run: RunReport, top: int) -> Iterator[Table | None]:  # noqa: ARG001  one row
    """Yield the data loads of the run; None if none was recorded."""
    loads = run.data_loading
    columns = (
        Field("source", lambda one: _source(one, run), "words"),
        number("loads", lambda one: one.count, counted),
        number("median", lambda one: one.median_ns, duration),
        number("largest", lambda one: one.max_ns, duration),
        words("where", lambda one: f"rank {rank_label(one.max_rank)}, step {step_label(one.max_step)}"),
        number("% of step", lambda one: one.exposed_share, format_percent),
        number("read", lambda loads: rate(loads.read_bytes_per_s, "B")),
        *([number("% of file", lambda one: one.file_share, format_percent)] if loads and loads.file_bandwidth else []),
    )
    remark = _file_bandwidth(loads.file_bandwidth) if loads and loads.file_bandwidth else ""
    yield make_table("Data loading", [loads] if loads and loads.count else [], columns, remark)


def _source(loads: DataLoading, run: RunReport) -> Cell:
    source = loads.source or run.source
    longest = Instance(LONG["data_loading"], ns=loads.max_ns, rank=loads.max_rank, step=loads.max_step)
    return Cell(MISSING if source in (None, UNNAMED) else escape_unprintable(source), instance=longest)


def _file_bandwidth(speed: FileBandwidth) -> str:
    bandwidth = rate(speed.bytes_per_s, "B")
    cached = "" if speed.cached_share is None else f", {format_percent(speed.cached_share)} of that from the page cache"
    return f"% of file: per-rank read rate relative to sequential reads of the file after the run: {bandwidth}{cached}"


LISTINGS: Final = {
    "loads": Listing(
        of_ranks(lambda rank: rank.steps),
        (
            RUN,
            data("source", str | None, lambda row: row.run.source),
            RANK,
            data("step", int | None, lambda row: row.of.step),
            *LOADS,
            data("exposed_ns", int, lambda row: row.of.exposed_ns.data_loading),
        ),
    )
}
