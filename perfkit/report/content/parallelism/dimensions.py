"""The table of communication by dimension of parallelism, and the column that names it in the tables of collectives."""

from collections.abc import Iterable, Sequence
from typing import Final

from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.cross_rank import MatchedCollectiveStat
from perfkit.schema.per_run.communication import DimensionStat, DimensionSummary
from perfkit.schema.rank import CollectiveStat
from perfkit.schema.run import Efficiency, RunReport
from perfkit.util.formatting import MISSING, duration, escape_unprintable, figures, format_percent, size

UNKNOWN: Final = "unknown"
_DATA_PARALLEL: Final = "dp"
_OUTSIDE: Final = "(outside)"
_MIN_OUTSIDE: Final = 0.0005
"""Share of the step below which what is outside of all collectives would show as 0.0 %."""
_HOSTS: Final = {None: UNKNOWN, False: "one", True: "several"}


def dimension_name(dimension: str | None) -> str:
    """Return the name of a dimension; `unknown` if it is None."""
    return UNKNOWN if dimension is None else escape_unprintable(dimension)


def by_dimension(run: RunReport) -> list[Table]:
    """Return the tables of communication by dimension; none if it all is data-parallel, or no dimension is known."""
    summary = run.dimensions
    if summary is None or not summary.rank_steps or not _says_something(summary.rows):
        return []
    return [_times(summary, run.efficiency), _groups(summary)]


def _times(summary: DimensionSummary, efficiency: Efficiency | None) -> Table:
    t_ns = efficiency.t_ns if efficiency else 0
    rows = [_times_row(row, summary.rank_steps, t_ns) for row in summary.rows]
    if summary.outside_share >= _MIN_OUTSIDE:
        rows.append(_outside_row(summary, t_ns))
    return Table(
        "Communication by dimension of parallelism (mean per step and rank)",
        (
            Column("dimension", "name"),
            Column("total"),
            Column("exposed"),
            Column("wait"),
            Column("transfer"),
            Column("lost"),
        ),
        rows,
        _remark(summary, efficiency),
    )


def _groups(summary: DimensionSummary) -> Table:
    hosts = any(row.across_hosts for row in summary.rows)
    return Table(
        "Groups by dimension of parallelism (count and size of messages per step and rank)",
        (
            Column("dimension", "name"),
            Column("ranks"),
            Column("groups"),
            *([Column("hosts", "words")] if hosts else []),
            Column("count"),
            Column("size"),
            Column("busbw"),
        ),
        [_groups_row(row, summary.rank_steps, hosts) for row in summary.rows],
        "ranks: per group; busbw: over all matched messages of known size",
    )


def _says_something(rows: Sequence[DimensionStat]) -> bool:
    kinds = {(row.dimension, row.across_hosts) for row in rows}
    return len(kinds) > 1 or not {row.dimension for row in rows} <= {_DATA_PARALLEL, None}


def _times_row(row: DimensionStat, rank_steps: int, t_ns: int) -> tuple[Cell, ...]:
    unsure = row.wait_unknown_ns > row.exposed_transfer_ns / 2
    return (
        Cell(_row_name(row)),
        Cell(duration(row.total_ns / rank_steps)),
        Cell(duration(row.exposed_ns / rank_steps), format_percent(row.share)),
        Cell(duration(row.exposed_wait_ns / rank_steps), "or more" if unsure else ""),
        Cell(duration(row.exposed_transfer_ns / rank_steps), "or less" if unsure else ""),
        Cell(format_percent(_lost(row.serialisation_lost_ns + row.transfer_lost_ns, t_ns))),
    )


def _outside_row(summary: DimensionSummary, t_ns: int) -> tuple[Cell, ...]:
    return (
        Cell(_OUTSIDE, tone="faint"),
        Cell(MISSING),
        Cell(duration(summary.outside_ns / summary.rank_steps), format_percent(summary.outside_share)),
        Cell(MISSING),
        Cell(MISSING),
        Cell(format_percent(_lost(summary.outside_lost_ns, t_ns))),
    )


def _groups_row(row: DimensionStat, rank_steps: int, hosts: bool) -> tuple[Cell, ...]:
    return (
        Cell(_row_name(row)),
        Cell(MISSING if row.group_size is None else str(row.group_size)),
        Cell(MISSING if row.groups is None else str(row.groups)),
        *([Cell(_HOSTS[row.across_hosts])] if hosts else []),
        Cell(figures(row.calls / rank_steps)),
        Cell(size(None if row.bytes is None else row.bytes / rank_steps)),
        Cell(MISSING if row.busbw is None else f"{size(row.busbw)}/s"),
    )


def _row_name(row: DimensionStat) -> str:
    return dimension_name(row.dimension) + (", across hosts" if row.across_hosts else "")


def _lost(lost_ns: int, t_ns: int) -> float | None:
    return lost_ns / t_ns if t_ns else None


def _remark(summary: DimensionSummary, efficiency: Efficiency | None) -> str:
    parts = ["wait and transfer: of the exposed time"]
    if efficiency and efficiency.t_ns:
        lost = format_percent(_lost(efficiency.t_ns - efficiency.own_ns, efficiency.t_ns))
        parts.append(f"lost: share of the run's time lost to dependency and transfer, {lost} in total")
    if summary.outside_share >= _MIN_OUTSIDE:
        parts.append(f"{_OUTSIDE}: calls that issue collectives or wait for them, in no collective's own time")
    if any(row.dimension is None for row in summary.rows):
        parts.append(f"{UNKNOWN}: the group's members and name, and where it was issued, do not show the dimension")
    return ". ".join(parts)


def dimension_column(rows: Iterable[CollectiveStat | MatchedCollectiveStat]) -> tuple[Column, ...]:
    """Return the column that names the dimension of collectives; none if they all have the same."""
    return (Column("dim", "words"),) if len({row.dimension for row in rows}) > 1 else ()


def dimension_cell(row: CollectiveStat | MatchedCollectiveStat, column: Sequence[Column]) -> tuple[Cell, ...]:
    """Return the cell of a collective in `dimension_column`."""
    return (Cell(dimension_name(row.dimension)),) if column else ()
