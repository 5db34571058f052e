"""The tables of collectives: by dimension of parallelism, by kind, and matched across ranks."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from perfkit.base.formatting import MISSING, duration, figures, format_percent, left_out, size
from perfkit.records.per_run.communication import DimensionStat, DimensionSummary
from perfkit.records.rank import CollectiveStat
from perfkit.records.run import Efficiency, RunReport
from perfkit.tables.aggregates import merged_collectives
from perfkit.tables.instances import collective_instances, collective_key
from perfkit.tables.kernel_names import collective_name
from perfkit.tables.labels import LOW, UNKNOWN, byte_rate, counted, dimension_column, dimension_name
from perfkit.tables.specification import (
    RANK,
    RUN,
    Cell,
    Field,
    Listing,
    Table,
    data,
    data_of,
    joined,
    make_table,
    name,
    number,
    of_ranks,
    of_runs,
    words,
)

_DATA_PARALLEL: Final = "dp"
_OUTSIDE: Final = "(outside)"
_MIN_OUTSIDE: Final = 0.0005
"""Share of the step below which what is outside of all collectives would show as 0.0 %."""
_HOSTS: Final = {None: UNKNOWN, False: "one", True: "several"}
_RANKS: Final = number("ranks", lambda row: row.group_size)
_SIZE: Final = number("size", lambda row: row.bytes, size)
_COUNT: Final = number("count", lambda row: row.count)
_TRANSFER: Final = number("transfer", lambda row: row.transfer_ns, duration)


def tables(run: RunReport, top: int) -> Iterator[Table | None]:
    """Yield the tables of collectives; None where nothing is known."""
    summary = run.dimensions
    if summary and summary.rank_steps and _says_something(summary.rows):
        yield _times(summary, run.efficiency)
        yield _groups(summary)
    yield _by_kind(run, top)
    yield shared_collectives(run, top)
    yield _fits(run)
    yield _bandwidth_shares(run, top)


# ---- by dimension of parallelism -----------------------------------------------------------------------------------


def _says_something(rows: Sequence[DimensionStat]) -> bool:
    kinds = {(row.dimension, row.across_hosts) for row in rows}
    return len(kinds) > 1 or not {row.dimension for row in rows} <= {_DATA_PARALLEL, None}


def _times(summary: DimensionSummary, efficiency: Efficiency | None) -> Table | None:
    t_ns, steps = efficiency.t_ns if efficiency else 0, summary.rank_steps

    def lost(row: DimensionStat | None) -> float | None:
        ns = row.serialisation_lost_ns + row.transfer_lost_ns if row else summary.outside_lost_ns
        return ns / t_ns if t_ns else None

    def exposed(row: DimensionStat | None) -> Cell:
        ns, share = (row.exposed_ns, row.share) if row else (summary.outside_ns, summary.outside_share)
        return Cell(duration(ns / steps), format_percent(share))

    columns = (
        Field("dimension", lambda row: _row_name(row) if row else Cell(_OUTSIDE, tone="faint"), "name"),
        number("total", lambda row: row.total_ns / steps if row else None, duration),
        number("exposed", exposed),
        number("wait", lambda row: row.exposed_wait_ns / steps if row else None, duration, note=_or("more")),
        number("transfer", lambda row: row.exposed_transfer_ns / steps if row else None, duration, note=_or("less")),
        number("lost", lost, format_percent),
    )
    outside = [None] if summary.outside_share >= _MIN_OUTSIDE else []
    title = "Communication by dimension of parallelism (mean per step and rank)"
    return make_table(title, [*summary.rows, *outside], columns, _remark(summary, efficiency))


def _or(what: str) -> Callable[[DimensionStat | None], str]:
    """Return a function that says whether a time may be more or less: where the waiting of much of it is unknown."""
    return lambda row: f"or {what}" if row and row.wait_unknown_ns > row.exposed_transfer_ns / 2 else ""


def _groups(summary: DimensionSummary) -> Table | None:
    hosts = any(row.across_hosts for row in summary.rows)
    columns = (
        Field("dimension", _row_name, "name"),
        _RANKS,
        number("groups", lambda row: row.groups),
        *([words("hosts", lambda row: _HOSTS[row.across_hosts])] if hosts else []),
        number("count", lambda row: row.calls / summary.rank_steps, figures),
        number("size", lambda row: None if row.bytes is None else row.bytes / summary.rank_steps, size),
        number("busbw", lambda row: row.busbw, byte_rate),
    )
    title = "Groups by dimension of parallelism (count and size of messages per step and rank)"
    return make_table(title, summary.rows, columns, "ranks: per group; busbw: over all matched messages of known size")


def _row_name(row: DimensionStat) -> str:
    return dimension_name(row.dimension) + (", across hosts" if row.across_hosts else "")


def _remark(summary: DimensionSummary, efficiency: Efficiency | None) -> str:
    parts = ["wait and transfer: of the exposed time"]
    if efficiency and efficiency.t_ns:
        lost = format_percent((efficiency.t_ns - efficiency.own_ns) / efficiency.t_ns)
        parts.append(f"lost: share of the run's time lost to dependency and transfer, {lost} in total")
    if summary.outside_share >= _MIN_OUTSIDE:
        parts.append(f"{_OUTSIDE}: calls that issue collectives or wait for them, in no collective's own time")
    if any(row.dimension is None for row in summary.rows):
        parts.append(f"{UNKNOWN}: the group's members and name, and where it was issued, do not show the dimension")
    return ". ".join(parts)


# ---- by kind, and across ranks -------------------------------------------------------------------------------------


def _by_kind(run: RunReport, top: int) -> Table | None:
    """Return collectives by operator, group, size and type, summed over all ranks."""
    merged, instances = merged_collectives(run), collective_instances(run)
    columns = (
        Field("operator", lambda row: Cell(collective_name(row), instance=instances[collective_key(row)]), "name"),
        *dimension_column(merged),
        name("group", lambda row: _group(row.group, row.group_size)),
        _SIZE,
        name("type", lambda row: row.dtype or MISSING),
        number("count", lambda row: row.count, counted),
        number("total", lambda row: row.total_ns, duration),
        number("exposed", lambda row: row.exposed_ns, duration),
        number("mean", lambda row: row.total_ns / row.count if row.count else None, duration),
    )
    left = merged[top:]
    remark = f"{len(left):,} more, {duration(sum(row.exposed_ns for row in left))} exposed in total" if left else ""
    title = "Collectives" + (f" (over {len(run.ranks)} ranks)" if len(run.ranks) > 1 else "")
    return make_table(title, merged, columns, remark, top=top)


def _group(group: str | None, members: int | None) -> str:
    count = "" if members is None else f"×{members}"
    return " ".join(part for part in (group, count) if part) or MISSING


def shared_collectives(run: RunReport, top: int) -> Table | None:
    """Return collectives matched across ranks, split into wait and transfer."""
    across = run.cross_rank
    rows = across.collectives if across else []
    columns = (
        Field("operator", collective_name, "name"),
        *dimension_column(rows),
        *(_RANKS, _SIZE, _COUNT),
        number("wait", lambda row: row.wait_ns, duration),
        _TRANSFER,
        number("algbw", lambda row: row.algbw, byte_rate),
        number("busbw", lambda row: row.busbw, byte_rate),
    )
    incomplete = any(finding.code == "groups_incomplete" for finding in run.findings)
    remark = joined(
        f"matched across ranks: {across.matched} of {across.matched + across.unmatched}" if across else "",
        left_out(len(rows) - top, "row") if len(rows) > top else "",
        "ranks without a trace take part, or may: transfers are upper and bandwidths lower bounds"
        if incomplete
        else "",
    )
    title = "Collectives across ranks (per collective: mean wait per rank; median transfer and its bandwidth)"
    return make_table(title, rows, columns, remark, top=top)


def _fits(run: RunReport) -> Table | None:
    """Return fits of transfer time against size; None if no operator and group has enough sizes."""
    rows = run.cross_rank.bandwidth_fits if run.cross_rank else []
    columns = (
        name("operator", lambda row: row.operator),
        _RANKS,
        number("sizes", lambda row: row.sizes),
        number("latency", lambda row: row.alpha_ns, duration),
        number("bandwidth", lambda row: row.beta, byte_rate),
        number("error", lambda row: row.error, lambda error: f"±{format_percent(error)}"),
    )
    remark = "error: root mean square over the sizes; an operator with fewer than three sizes has no fit"
    known = rows if any(row.reason is None for row in rows) else []
    return make_table("Collectives by size: transfer = latency + bytes on the bus / bandwidth", known, columns, remark)


def _bandwidth_shares(run: RunReport, top: int) -> Table | None:
    """Return the collectives against those of a benchmark; None without one."""
    rows = run.bandwidth_shares or []
    columns = (
        name("operator", lambda row: row.operator),
        words("dimension", lambda row: row.dimension or MISSING),
        *(_RANKS, _SIZE, _COUNT, _TRANSFER),
        number("measured", lambda row: row.measured_ns, duration),
        number("share", lambda row: row.share, format_percent, low=LOW),
    )
    left = left_out(len(rows) - top, "row") if len(rows) > top else ""
    remark = joined("share: measured time / transfer, as both move the same bytes", left)
    return make_table("Collectives against the measured bandwidth (--collectives)", rows, columns, remark, top=top)


LISTINGS: Final = {
    "collectives": Listing(of_ranks(lambda rank: rank.collectives), (RUN, RANK, *data_of(CollectiveStat))),
    "dimensions": Listing(
        of_runs(lambda run: run.dimensions.rows if run.dimensions else ()),
        (RUN, *data_of(DimensionStat), data("rank_steps", int, lambda row: row.run.dimensions.rank_steps)),
    ),
}
