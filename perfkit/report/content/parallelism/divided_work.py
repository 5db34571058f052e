"""The table of tensor, context and expert parallelism: communication against compute."""

from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.per_rank.sharding import DividedWork
from perfkit.schema.run import RunReport
from perfkit.util.formatting import MISSING, duration, figures, format_percent, size


def divided_work(run: RunReport) -> Table | None:
    """Return what dividing the work of layers costs; None if nothing divides it."""
    rows = run.divided_work
    if not rows:
        return None
    return Table(
        "Work of layers divided between ranks: communication against compute (mean per step and rank)",
        (
            Column("dimension"),
            Column("count"),
            Column("per layer"),
            Column("total"),
            Column("per token"),
            Column("exposed"),
            Column("wait"),
            Column("compute"),
        ),
        [
            (
                Cell(row.dimension),
                Cell(figures(row.collectives)),
                Cell(figures(row.collectives / row.layers) if row.layers else MISSING),
                Cell(duration(row.total_ns)),
                Cell(duration(row.total_ns / row.tokens) if row.tokens else MISSING, _bytes_per_token(row)),
                Cell(duration(row.exposed_ns), _share(row)),
                Cell(duration(row.wait_ns)),
                Cell(duration(row.compute_ns)),
            )
            for row in rows
        ],
        "; ".join(f"{row.dimension}: {remark}" for row in rows if (remark := _remark(row))),
    )


def _bytes_per_token(row: DividedWork) -> str:
    return size(round(row.bytes / row.tokens)) if row.tokens and row.bytes is not None else ""


def _share(row: DividedWork) -> str:
    """Return how much of the communication is exposed."""
    return format_percent(row.exposed_ns / row.total_ns) if row.total_ns else ""


def _remark(row: DividedWork) -> str:
    parts = []
    if row.sequence_parallel is not None:
        parts.append("sequence-parallel" if row.sequence_parallel else "not sequence-parallel")
    if row.attention_ns is not None:
        parts.append(f"attention: {duration(row.attention_ns)} of compute")
    if row.imbalance is not None:
        parts.append(f"fullest rank: {row.imbalance:.2f} times the mean tokens")
    return ", ".join(parts)
