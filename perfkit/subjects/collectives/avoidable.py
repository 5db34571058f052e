"""Collectives that need not be there: tiny ones, and broadcasts of buffers."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from perfkit.engine.losses.context import MANY, MIN_SHARE, TINY_BYTES, LossContext
from perfkit.engine.losses.dimensions import REPLICATED
from perfkit.engine.losses.loss import Loss
from perfkit.records.cross_rank import MatchedCollectiveStat
from perfkit.records.facts import fact
from perfkit.records.rank import CollectiveStat

_DEPENDENT: Final = frozenset({"tp", "pp", "cp", "ep", "shard"})
_DDP_FORWARD: Final = "DistributedDataParallel.forward"
_ZERO: Final = "Optimizer.step#ZeroRedundancyOptimizer"


def tiny_collectives(context: LossContext) -> Loss | None:
    """Many tiny collectives that could be one."""
    steps, rows = context.recorded_steps, _largest_tiny(context)
    if not rows or not steps:
        return None
    operator, group = rows[0].operator, rows[0].group
    many = sum(row.count for row in rows) / steps
    # One collective in their place would still take its turn, and what was overlapped cannot be saved.
    saving_ns = min(_transfer_ns(rows) / steps * (many - 1) / many, _exposed_ns(context, operator, group))
    if many < MANY or context.share(saving_ns) < MIN_SHARE:
        return None
    carried = sum(row.count * (row.bytes or 0) for row in rows) / steps
    taken_ns = _transfer_ns(rows) / steps
    return Loss(
        cause="tiny_collectives",
        row="communication",
        code=operator,
        facts=(fact("tiny_collectives", count=many, operator=operator, bytes=round(carried)),),
        evidence={"collectives": many, "bytes": carried, "transfer_ns": taken_ns},
        remedy=(fact("combine_collectives"),),
        per_step_ns=saving_ns,
    )


def _largest_tiny(context: LossContext) -> list[MatchedCollectiveStat]:
    """Return the tiny collectives of the operator and group whose transfers take longest; empty without any."""
    groups: dict[tuple[str, str | None], list[MatchedCollectiveStat]] = defaultdict(list)
    for row in context.run.cross_rank.collectives if context.run.cross_rank else ():
        if _is_tiny(row):
            groups[row.operator, row.group].append(row)
    return max(groups.values(), key=_transfer_ns, default=[])


def _is_tiny(row: MatchedCollectiveStat) -> bool:
    """Return whether the time of these collectives is known, nearly all latency, and not needed once for each."""
    return row.bytes is not None and row.bytes <= TINY_BYTES and row.transfer_ns is not None and _may_join(row)


def _may_join(row: MatchedCollectiveStat) -> bool:
    """Return whether a collective may be combined with others: those that split a layer or its input depend on them."""
    return row.dimension is None or not _DEPENDENT & set(row.dimension.split("+"))


def _transfer_ns(rows: list[MatchedCollectiveStat]) -> float:
    return sum(row.count * (row.transfer_ns or 0) for row in rows)


def _exposed_ns(context: LossContext, operator: str, group: str | None) -> float:
    """Return the exposed time of tiny collectives of one kind, per step and rank."""
    exposed_ns = sum(
        row.exposed_ns
        for rank in context.run.ranks
        for row in rank.collectives
        if (row.operator, row.group) == (operator, group) and row.bytes is not None and row.bytes <= TINY_BYTES
    )
    return exposed_ns / context.rank_steps


def broadcast_buffers(context: LossContext) -> Loss | None:
    """DDP's broadcasts of buffers."""
    phases = {phase.name for rank in context.run.ranks for phase in rank.phases}
    # ZeRO's optimizer broadcasts parameters, which must be.
    if _DDP_FORWARD not in phases or any(name.startswith(_ZERO) for name in phases):
        return None
    rows = [row for rank in context.run.ranks for row in rank.collectives if _is_buffer(row)]
    count = sum(row.count for row in rows) / context.rank_steps
    exposed_ns = sum(row.exposed_ns for row in rows) / context.rank_steps
    if count < 1 or context.share(exposed_ns) < MIN_SHARE:
        return None
    return Loss(
        cause="broadcast_buffers",
        row="communication",
        phase="forward",
        facts=(fact("broadcast_buffers", count=round(count)),),
        evidence={"broadcasts": count, "exposed_ns": exposed_ns, "exposed_share": context.share(exposed_ns)},
        remedy=(fact("keep_buffers"),),
        per_step_ns=exposed_ns,
    )


def _is_buffer(row: CollectiveStat) -> bool:
    return row.operator == "broadcast" and row.dimension in (*REPLICATED, None)


def reported_ns(context: LossContext, dimension: str | None) -> float:
    """Return the exposed time of a dimension, per step, that the rules of this module already promise to save (ns)."""
    reported = 0.0
    if broadcast_buffers(context) is not None:
        rows = [row for rank in context.run.ranks for row in rank.collectives if _is_buffer(row)]
        reported += sum(row.exposed_ns for row in rows if row.dimension == dimension) / context.rank_steps
    tiny = tiny_collectives(context)
    if tiny is not None:  # those of one group may be of several dimensions where that of some is unknown
        tiny_rows = _largest_tiny(context)
        share = _transfer_ns([row for row in tiny_rows if row.dimension == dimension]) / _transfer_ns(tiny_rows)
        reported += share * (tiny.per_step_ns or 0.0)
    return reported


def unreported(context: LossContext, rows: Iterable[MatchedCollectiveStat]) -> list[MatchedCollectiveStat]:
    """Return the collectives that no rule of this module reports."""
    tiny = set(map(id, _largest_tiny(context) if tiny_collectives(context) is not None else ()))
    has_buffers = broadcast_buffers(context) is not None

    def is_reported(row: MatchedCollectiveStat) -> bool:
        if row.operator == "broadcast" and row.dimension in (*REPLICATED, None):
            return has_buffers
        return id(row) in tiny

    return [row for row in rows if not is_reported(row)]
