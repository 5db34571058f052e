"""Tables of where in a step collectives are issued, and of sharded parameters."""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from perfkit.report.content.document import Cell, Column, Table
from perfkit.schema.aggregate import add_gathers, add_issued, add_sharding
from perfkit.schema.per_rank.sharding import IssuedCollectives, ParameterGathers
from perfkit.schema.run import RunReport
from perfkit.util.formatting import MISSING, duration, escape_unprintable, figures, format_percent, size

_OUTSIDE: Final = "other"
"""A collective that no pass issued, or for which the trace does not tell."""
_CAUSES: Final = {
    "late": "issued late",
    "queued": "queued",
    "held": "held",
    "first": "first",
    "short": "too little compute",
    "synchronous": "synchronous",
}
_MEANINGS: Final = {
    "late": "compute ran before its issue",
    "queued": "behind another collective",
    "held": "behind earlier work",
    "first": "no compute before it",
    "synchronous": "the host waits where it issues them, and autograd's operators around them count as compute",
}


def by_phase(run: RunReport) -> Table | None:
    """Return collectives by dimension, operator and phase; None if there is but one phase to tell of."""
    rows = add_issued(_without_layer(row for rank in run.ranks for row in rank.issued_collectives))
    steps = sum(len(rank.steps) for rank in run.ranks)
    if len({row.phase for row in rows}) < 2 or not steps:
        return None
    wall_ns = sum(step.wall_ns for rank in run.ranks for step in rank.steps)
    with_dimension = len({row.dimension for row in rows}) > 1
    return Table(
        "Collectives by phase (mean per step and rank)",
        (
            *([Column("dimension", "name")] if with_dimension else []),
            Column("operator", "name"),
            Column("phase", "words"),
            Column("count"),
            Column("bytes"),
            Column("total"),
            Column("exposed"),
            Column("% of step"),
        ),
        [
            (
                *([Cell(escape_unprintable(row.dimension or "unknown"))] if with_dimension else []),
                Cell(escape_unprintable(row.operator)),
                Cell(row.phase or _OUTSIDE),
                *_figures(row, steps),
                Cell(format_percent(row.exposed_ns / wall_ns if wall_ns else None)),
            )
            for row in rows
        ],
        f"{_OUTSIDE}: issued outside of forward, backward and optimizer, or not known to be inside"
        if any(row.phase is None for row in rows)
        else "",
    )


def _without_layer(rows: Iterable[IssuedCollectives]) -> Iterable[IssuedCollectives]:
    return (replace(row, layer=None) for row in rows)


def _figures(row: IssuedCollectives, steps: int) -> tuple[Cell, ...]:
    known = row.count - row.unsized
    at_least = "≥ " if row.unsized and known else ""
    return (
        Cell(figures(row.count / steps)),
        Cell(f"{at_least}{size(round(row.bytes / steps))}" if known else MISSING),
        Cell(duration(row.total_ns / steps)),
        Cell(duration(row.exposed_ns / steps)),
    )


def by_layer(run: RunReport, top: int) -> Table | None:
    """Return collectives by layer, largest exposed time first; None if no layer is known."""
    known = add_issued(row for rank in run.ranks for row in rank.issued_collectives if row.layer is not None)
    steps = sum(len(rank.steps) for rank in run.ranks)
    if not known or not steps:
        return None
    left = known[top:]
    rest = duration(sum(row.exposed_ns for row in left) / steps)
    return Table(
        "Collectives by layer (mean per step and rank)",
        (
            Column("layer", "name"),
            Column("operator", "name"),
            Column("phase", "words"),
            Column("count"),
            Column("bytes"),
            Column("total"),
            Column("exposed"),
        ),
        [
            (
                Cell(escape_unprintable(row.layer or MISSING)),
                Cell(escape_unprintable(row.operator)),
                Cell(row.phase or _OUTSIDE),
                *_figures(row, steps),
            )
            for row in known[:top]
        ],
        f"{len(left)} more, {rest} exposed" if left else "",
    )


def gathers(run: RunReport) -> Table | None:
    """Return how much of the all-gathers of parameters is hidden, and what exposes the rest; None without any."""
    sharded = add_sharding(rank.sharded_parameters for rank in run.ranks)
    steps = sum(len(rank.steps) for rank in run.ranks)
    if sharded is None or not steps:
        return None
    rows = _by_phase(sharded.gathers)
    causes = [cause for cause in _CAUSES if any(getattr(row, f"{cause}_ns") for row in rows)]
    tail = (
        f"gradients: {duration(sharded.reductions_exposed_ns / steps)} of their reduction is exposed, "
        f"{duration(sharded.tail_ns / steps)} of it after the last compute of backward"
    )
    meanings = [f"{_CAUSES[cause]}: {_MEANINGS[cause]}" for cause in causes if cause in _MEANINGS]
    return Table(
        "All-gathers of sharded parameters: what exposes them (mean per step and rank)",
        (
            Column("phase", "words"),
            Column("count"),
            Column("bytes"),
            Column("total"),
            Column("hidden"),
            Column("exposed"),
            *(Column(_CAUSES[cause]) for cause in causes),
        ),
        [
            (
                Cell(row.phase or _OUTSIDE),
                Cell(figures(row.count / steps)),
                Cell(size(round(row.bytes / steps)) if row.bytes else MISSING),
                Cell(duration(row.total_ns / steps)),
                Cell(format_percent(_hidden_ns(row) / row.total_ns if row.total_ns else None)),
                Cell(duration(row.exposed_ns / steps)),
                *(Cell(duration(getattr(row, f"{cause}_ns") / steps)) for cause in causes),
            )
            for row in rows
        ],
        "; ".join([*meanings, *([tail] if sharded.reductions else [])]),
    )


def _hidden_ns(row: ParameterGathers) -> int:
    """Return the time in which other work ran: none, where the host waits, whatever counts as compute around it."""
    return row.total_ns - row.exposed_ns - (row.waited_ns - row.synchronous_ns)


def _by_phase(rows: Sequence[ParameterGathers]) -> list[ParameterGathers]:
    return add_gathers(replace(row, layer=None) for row in rows)
