"""The tables of sharded parameters, of where in a step collectives are issued, and of work that ranks divide."""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from perfkit.base.formatting import MISSING, duration, figures, format_percent, size
from perfkit.records.aggregate import add_gathers, add_issued, add_sharding
from perfkit.records.per_rank.sharding import DividedWork, IssuedCollectives, ParameterGathers
from perfkit.records.run import RunReport
from perfkit.tables.labels import UNKNOWN
from perfkit.tables.specification import (
    RANK,
    RUN,
    Field,
    Listing,
    Table,
    data_of,
    joined,
    make_table,
    name,
    number,
    of_ranks,
    words,
)

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


def tables(run: RunReport, top: int) -> Iterator[Table | None]:
    """Yield collectives by phase and layer, gathers of sharded parameters, and divided work; None where unknown."""
    steps = sum(len(rank.steps) for rank in run.ranks)
    if steps:
        yield _by_phase(run, steps)
        yield _by_layer(run, steps, top)
        yield _gathers(run, steps)
    yield _divided_work(run)


_OPERATOR: Final = name("operator", lambda row: row.operator)
_PHASE: Final = words("phase", lambda row: row.phase or _OUTSIDE)


def _by_phase(run: RunReport, steps: int) -> Table | None:
    """Return collectives by dimension, operator and phase; None if there is but one phase to tell of."""
    rows = add_issued(replace(row, layer=None) for rank in run.ranks for row in rank.issued_collectives)
    wall_ns = sum(step.wall_ns for rank in run.ranks for step in rank.steps)
    with_dimension = len({row.dimension for row in rows}) > 1
    columns = (
        *([name("dimension", lambda row: row.dimension or UNKNOWN)] if with_dimension else []),
        *(_OPERATOR, _PHASE, *_figures(steps)),
        number("% of step", lambda row: row.exposed_ns / wall_ns if wall_ns else None, format_percent),
    )
    phases = {row.phase for row in rows}
    remark = f"{_OUTSIDE}: issued outside of forward, backward and optimizer, or not known to be inside"
    title = "Collectives by phase (mean per step and rank)"
    return make_table(title, rows if len(phases) > 1 else [], columns, remark if None in phases else "")


def _figures(steps: int) -> tuple[Field, ...]:
    return (
        number("count", lambda row: row.count / steps, figures),
        number("bytes", lambda row: _bytes(row, steps)),
        number("total", lambda row: row.total_ns / steps, duration),
        number("exposed", lambda row: row.exposed_ns / steps, duration),
    )


def _bytes(row: IssuedCollectives, steps: int) -> str | None:
    known = row.count - row.unsized
    at_least = "≥ " if row.unsized and known else ""
    return f"{at_least}{size(round(row.bytes / steps))}" if known else None


def _by_layer(run: RunReport, steps: int, top: int) -> Table | None:
    """Return collectives by layer, largest exposed time first; None if no layer is known."""
    known = add_issued(row for rank in run.ranks for row in rank.issued_collectives if row.layer is not None)
    left = known[top:]
    remark = f"{len(left)} more, {duration(sum(row.exposed_ns for row in left) / steps)} exposed" if left else ""
    columns = (name("layer", lambda row: row.layer or MISSING), _OPERATOR, _PHASE, *_figures(steps))
    return make_table("Collectives by layer (mean per step and rank)", known, columns, remark, top=top)


def _gathers(run: RunReport, steps: int) -> Table | None:
    """Return how much of the all-gathers of parameters is hidden, and what exposes the rest; None without any."""
    sharded = add_sharding(rank.sharded_parameters for rank in run.ranks)
    if sharded is None:
        return None
    rows = add_gathers(replace(row, layer=None) for row in sharded.gathers)
    causes = [cause for cause in _CAUSES if any(getattr(row, f"{cause}_ns") for row in rows)]
    columns = (
        _PHASE,
        number("count", lambda row: row.count / steps, figures),
        number("bytes", lambda row: round(row.bytes / steps) if row.bytes else None, size),
        number("total", lambda row: row.total_ns / steps, duration),
        number("hidden", lambda row: _hidden_ns(row) / row.total_ns if row.total_ns else None, format_percent),
        number("exposed", lambda row: row.exposed_ns / steps, duration),
        *(_cause(cause, steps) for cause in causes),
    )
    remark = joined(
        *(f"{_CAUSES[cause]}: {_MEANINGS[cause]}" for cause in causes if cause in _MEANINGS),
        f"gradients: {duration(sharded.reductions_exposed_ns / steps)} of their reduction is exposed, "
        f"{duration(sharded.tail_ns / steps)} of it after the last compute of backward"
        if sharded.reductions
        else "",
    )
    title = "All-gathers of sharded parameters: what exposes them (mean per step and rank)"
    return make_table(title, rows, columns, remark)


def _cause(cause: str, steps: int) -> Field:
    return number(_CAUSES[cause], lambda row: getattr(row, f"{cause}_ns") / steps, duration)


def _hidden_ns(row: ParameterGathers) -> int:
    """Return the time in which other work ran: none, where the host waits, whatever counts as compute around it."""
    return row.total_ns - row.exposed_ns - (row.waited_ns - row.synchronous_ns)


_DIVIDED: Final = (
    number("dimension", lambda row: row.dimension),
    number("count", lambda row: row.collectives, figures),
    number("per layer", lambda row: row.collectives / row.layers if row.layers else None, figures),
    number("total", lambda row: row.total_ns, duration),
    number(
        "per token",
        lambda row: row.total_ns / row.tokens if row.tokens else None,
        duration,
        note=lambda row: size(round(row.bytes / row.tokens)) if row.tokens and row.bytes is not None else "",
    ),
    number(
        "exposed",
        lambda row: row.exposed_ns,
        duration,
        note=lambda row: format_percent(row.exposed_ns / row.total_ns) if row.total_ns else "",
    ),
    number("wait", lambda row: row.wait_ns, duration),
    number("compute", lambda row: row.compute_ns, duration),
)


def _divided_work(run: RunReport) -> Table | None:
    """Return what dividing the work of layers costs: tensor, context and expert parallelism; None without any."""
    title = "Work of layers divided between ranks: communication against compute (mean per step and rank)"
    remark = joined(*(f"{row.dimension}: {remark}" for row in run.divided_work if (remark := _remark(row))))
    return make_table(title, run.divided_work, _DIVIDED, remark)


def _remark(row: DividedWork) -> str:
    parts = []
    if row.sequence_parallel is not None:
        parts.append("sequence-parallel" if row.sequence_parallel else "not sequence-parallel")
    if row.attention_ns is not None:
        parts.append(f"attention: {duration(row.attention_ns)} of compute")
    if row.imbalance is not None:
        parts.append(f"fullest rank: {row.imbalance:.2f} times the mean tokens")
    return ", ".join(parts)


LISTINGS: Final = {
    "issued_collectives": Listing(
        of_ranks(lambda rank: rank.issued_collectives), (RUN, RANK, *data_of(IssuedCollectives, bytes=int | None))
    ),
    "parameter_gathers": Listing(
        of_ranks(lambda rank: rank.sharded_parameters.gathers if rank.sharded_parameters else ()),
        (RUN, RANK, *data_of(ParameterGathers, bytes=int | None)),
    ),
}
