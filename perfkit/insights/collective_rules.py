"""Insight rules for collectives that need not be there: many tiny ones, and broadcasts of buffers."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from perfkit.insights.dimension_advice import REPLICATED
from perfkit.insights.rule import InsightDraft, Rule
from perfkit.insights.run_context import RunContext
from perfkit.schema.cross_rank import MatchedCollectiveStat
from perfkit.schema.rank import CollectiveStat
from perfkit.util.formatting import duration, escape_unprintable, size

_MIN_SHARE: Final = 0.05
"""Smallest share of the step that is reported."""
_TINY_BYTES: Final = 16_384
"""Up to this size the time of a collective is nearly all latency."""
_MANY: Final = 10
"""Fewest tiny collectives per step that are many."""
_DEPENDENT: Final = frozenset({"tp", "pp", "cp", "ep", "shard"})
_DDP_FORWARD: Final = "DistributedDataParallel.forward"
_ZERO: Final = "Optimizer.step#ZeroRedundancyOptimizer"


def _tiny(context: RunContext) -> InsightDraft | None:
    steps, rows = context.recorded_steps, _largest_tiny(context)
    if not rows or not steps:
        return None
    operator, group = rows[0].operator, rows[0].group
    many = sum(row.count for row in rows) / steps
    # One collective in their place would still take its turn, and what was overlapped cannot be saved.
    saving_ns = min(_transfer_ns(rows) / steps * (many - 1) / many, _exposed_ns(context, operator, group))
    if many < _MANY or context.share(saving_ns) < _MIN_SHARE:
        return None
    carried = sum(row.count * (row.bytes or 0) for row in rows) / steps
    taken_ns = _transfer_ns(rows) / steps
    return InsightDraft(
        f"{many:.0f} tiny collectives per step ({escape_unprintable(operator)}, {size(round(carried))} in all) take "
        f"{duration(taken_ns)} of data transfer, nearly all of it latency",
        {"collectives": many, "bytes": carried, "transfer_ns": taken_ns},
        "combine them into one if they do not depend on each other, or issue them only every few steps (metrics, for "
        "example)",
        saving_ns,
    )


def _largest_tiny(context: RunContext) -> list[MatchedCollectiveStat]:
    """Return the tiny collectives of the operator and group whose transfers take longest; empty without any."""
    groups: dict[tuple[str, str | None], list[MatchedCollectiveStat]] = defaultdict(list)
    for row in context.run.cross_rank.collectives if context.run.cross_rank else ():
        if _is_tiny(row):
            groups[row.operator, row.group].append(row)
    return max(groups.values(), key=_transfer_ns, default=[])


def _is_tiny(row: MatchedCollectiveStat) -> bool:
    """Return whether the time of these collectives is known, nearly all latency, and not needed once for each."""
    return row.bytes is not None and row.bytes <= _TINY_BYTES and row.transfer_ns is not None and _may_join(row)


def _may_join(row: MatchedCollectiveStat) -> bool:
    """Return whether a collective may be combined with others: those that split a layer or its input depend on them."""
    return row.dimension is None or not _DEPENDENT & set(row.dimension.split("+"))


def _transfer_ns(rows: list[MatchedCollectiveStat]) -> float:
    return sum(row.count * (row.transfer_ns or 0) for row in rows)


def _exposed_ns(context: RunContext, operator: str, group: str | None) -> float:
    """Return the exposed time of tiny collectives of one kind, per step and rank."""
    exposed_ns = sum(
        row.exposed_ns
        for rank in context.run.ranks
        for row in rank.collectives
        if (row.operator, row.group) == (operator, group) and row.bytes is not None and row.bytes <= _TINY_BYTES
    )
    return exposed_ns / context.rank_steps


def _buffers(context: RunContext) -> InsightDraft | None:
    phases = {phase.name for rank in context.run.ranks for phase in rank.phases}
    # ZeRO's optimizer broadcasts parameters, which must be.
    if _DDP_FORWARD not in phases or any(name.startswith(_ZERO) for name in phases):
        return None
    rows = [row for rank in context.run.ranks for row in rank.collectives if _is_buffer(row)]
    count = sum(row.count for row in rows) / context.rank_steps
    exposed_ns = sum(row.exposed_ns for row in rows) / context.rank_steps
    if count < 1 or context.share(exposed_ns) < _MIN_SHARE:
        return None
    each = f"{count:.0f} broadcast{'s' if count >= 1.5 else ''} per step"
    return InsightDraft(
        f"{each} expose {duration(exposed_ns)} of communication; DDP broadcasts a model's buffers, such as those of "
        "batch normalisation, before each forward",
        {"broadcasts": count, "exposed_ns": exposed_ns, "exposed_share": context.share(exposed_ns)},
        "pass broadcast_buffers=False to DDP, if the buffers need not agree in every step",
        exposed_ns,
    )


def _is_buffer(row: CollectiveStat) -> bool:
    return row.operator == "broadcast" and row.dimension in (*REPLICATED, None)


def reported_ns(context: RunContext, dimension: str | None) -> float:
    """Return the exposed time of a dimension, per step, that the rules of this module already promise to save (ns)."""
    reported = 0.0
    if _buffers(context) is not None:
        rows = [row for rank in context.run.ranks for row in rank.collectives if _is_buffer(row)]
        reported += sum(row.exposed_ns for row in rows if row.dimension == dimension) / context.rank_steps
    tiny = _tiny(context)
    if tiny is not None:  # those of one group may be of several dimensions where that of some is unknown
        tiny_rows = _largest_tiny(context)
        share = _transfer_ns([row for row in tiny_rows if row.dimension == dimension]) / _transfer_ns(tiny_rows)
        reported += share * (tiny.potential_saving_ns or 0.0)
    return reported


def unreported(context: RunContext, rows: Iterable[MatchedCollectiveStat]) -> list[MatchedCollectiveStat]:
    """Return the collectives that no rule of this module reports."""
    tiny = set(map(id, _largest_tiny(context) if _tiny(context) is not None else ()))
    has_buffers = _buffers(context) is not None

    def is_reported(row: MatchedCollectiveStat) -> bool:
        if row.operator == "broadcast" and row.dimension in (*REPLICATED, None):
            return has_buffers
        return id(row) in tiny

    return [row for row in rows if not is_reported(row)]


TINY: Final = Rule("tiny_collectives", _tiny)
BUFFERS: Final = Rule("broadcast_buffers", _buffers)
