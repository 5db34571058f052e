"""Tables across ranks: the efficiency hierarchy, and collectives split into wait and transfer."""

from typing import Final

from perfkit.report.content.document import Cell, Column, Table
from perfkit.report.content.kernel_names import collective_name
from perfkit.report.content.parallelism.dimensions import dimension_cell, dimension_column
from perfkit.schema.run import RunReport
from perfkit.util.formatting import MISSING, duration, escape_unprintable, format_percent, left_out, size

_LOW: Final = 0.8
"""A factor below it is highlighted (metrics.md section 6)."""
_MOST_COLUMNS: Final = 6
_WAITS_UNRELIABLE: Final = frozenset({"groups_incomplete", "suspect_matches", "ranks_missing", "timelines_disagree"})
"""Findings after which wait and transfer cannot be separated."""
INDENT: Final = "\u2003"  # an em space: markdown and HTML would drop an ordinary one
_ROWS: Final = {
    "parallel": "parallel efficiency",
    "load_balance": f"{INDENT}load balance",
    "host": f"{INDENT}host / launch",
    "input": f"{INDENT}input",
    "serialisation": f"{INDENT}dependency (serialisation)",
    "transfer": f"{INDENT}transfer",
    "au": "accelerator utilisation",
}


def efficiency(runs: list[RunReport]) -> Table | None:
    """Return POP's hierarchy with one column per run; None if no run has one, or too many have."""
    known = [(run, run.efficiency) for run in runs if run.efficiency and run.efficiency.host]
    if not known or len(known) > _MOST_COLUMNS:
        return None
    several = len(runs) > 1
    titles = [escape_unprintable(run.run) for run, _ in known] if several else ["share"]
    rows = [(Cell(label), *(_factor(getattr(factors, name)) for _, factors in known)) for name, label in _ROWS.items()]
    columns = [Column(f"{place}" if several else title) for place, title in enumerate(titles, 1)]
    legend = "; ".join(f"{place}: {title}" for place, title in enumerate(titles, 1)) if several else ""
    remark = "parallel efficiency is the product of the five below it" + (f". {legend}" if legend else "")
    partial = [
        (f"{place}: " if several else "") + factors.reason
        for place, (_, factors) in enumerate(known, 1)
        if factors.parallel is None and factors.reason
    ]
    if partial:
        remark += f". {'; '.join(partial)}"
    if any(finding.code in _WAITS_UNRELIABLE for run, _ in known for finding in run.findings):
        remark += (
            f". {'In some runs, w' if len(known) > 1 else 'W'}ait and transfer cannot be separated (see the findings): "
            "only the product of the dependency and transfer factors is valid"
        )
    return Table("Efficiency", (Column("factor", "words"), *columns), rows, remark)


def _factor(value: float | None) -> Cell:
    return Cell(format_percent(value), tone="warning" if value is not None and value < _LOW else "plain")


def shared_collectives(run: RunReport, top: int) -> Table | None:
    """Return collectives matched across ranks, split into wait and transfer."""
    if run.cross_rank is None or not run.cross_rank.collectives:
        return None
    cross_rank = run.cross_rank
    rows = cross_rank.collectives
    left, dimension = len(rows) - top, dimension_column(rows)
    remark = f"matched across ranks: {cross_rank.matched} of {cross_rank.matched + cross_rank.unmatched}" + (
        f"; {left_out(left, 'row')}" if left > 0 else ""
    )
    if any(finding.code == "groups_incomplete" for finding in run.findings):
        remark += "; ranks without a trace take part, or may: transfers are upper and bandwidths lower bounds"
    return Table(
        "Collectives across ranks (per collective: mean wait per rank; median transfer and its bandwidth)",
        (
            Column("operator", "name"),
            *dimension,
            Column("ranks"),
            Column("size"),
            Column("count"),
            Column("wait"),
            Column("transfer"),
            Column("algbw"),
            Column("busbw"),
        ),
        [
            (
                Cell(collective_name(row)),
                *dimension_cell(row, dimension),
                Cell(MISSING if row.group_size is None else str(row.group_size)),
                Cell(size(row.bytes)),
                Cell(str(row.count)),
                Cell(duration(row.wait_ns)),
                Cell(duration(row.transfer_ns)),
                Cell(_rate(row.algbw)),
                Cell(_rate(row.busbw)),
            )
            for row in rows[:top]
        ],
        remark,
    )


def fits(run: RunReport) -> Table | None:
    """Return fits of transfer time against size; None if no operator and group has enough sizes."""
    rows = run.cross_rank.bandwidth_fits if run.cross_rank else []
    if not any(row.reason is None for row in rows):
        return None
    return Table(
        "Collectives by size: transfer = latency + bytes on the bus / bandwidth",
        (
            Column("operator", "name"),
            Column("ranks"),
            Column("sizes"),
            Column("latency"),
            Column("bandwidth"),
            Column("error"),
        ),
        [
            (
                Cell(escape_unprintable(row.operator)),
                Cell(MISSING if row.group_size is None else str(row.group_size)),
                Cell(str(row.sizes)),
                Cell(duration(row.alpha_ns)),
                Cell(_rate(row.beta)),
                Cell(MISSING if row.error is None else f"±{format_percent(row.error)}"),
            )
            for row in rows
        ],
        "error: root mean square over the sizes; an operator with fewer than three sizes has no fit",
    )


def bandwidth_shares(run: RunReport, top: int) -> Table | None:
    """Return the collectives against those of a benchmark; None without one."""
    rows = run.bandwidth_shares
    if not rows:
        return None
    left = len(rows) - top
    return Table(
        "Collectives against the measured bandwidth (--collectives)",
        (
            Column("operator", "name"),
            Column("dimension", "words"),
            Column("ranks"),
            Column("size"),
            Column("count"),
            Column("transfer"),
            Column("measured"),
            Column("share"),
        ),
        [
            (
                Cell(escape_unprintable(row.operator)),
                Cell(escape_unprintable(row.dimension or MISSING)),
                Cell(MISSING if row.group_size is None else str(row.group_size)),
                Cell(size(row.bytes)),
                Cell(str(row.count)),
                Cell(duration(row.transfer_ns)),
                Cell(duration(row.measured_ns)),
                Cell(format_percent(row.share), tone="warning" if row.share < _LOW else "plain"),
            )
            for row in rows[:top]
        ],
        "share: measured time / transfer, as both move the same bytes"
        + (f"; {left_out(left, 'row')}" if left > 0 else ""),
    )


def _rate(bytes_per_s: float | None) -> str:
    return MISSING if bytes_per_s is None else f"{size(bytes_per_s)}/s"
