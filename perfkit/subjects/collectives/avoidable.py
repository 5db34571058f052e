"""Collectives that need not be there: of each micro-batch, tiny ones, of unused parameters, broadcasts of buffers."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from math import ceil
from typing import Final, NamedTuple, cast

from perfkit.engine.losses.context import MIN_SHARE, LossContext
from perfkit.engine.losses.dimensions import DDP_FORWARD, REPLICATED, is_latency, micro_batches, reduced_each
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.engine.whatif.changes import REDUCED_ONCE
from perfkit.records.cross_rank import MatchedCollectiveStat
from perfkit.records.facts import fact
from perfkit.records.rank import CollectiveStat

_DEPENDENT: Final = frozenset({"tp", "pp", "cp", "ep", "shard"})
_ZERO: Final = "Optimizer.step#ZeroRedundancyOptimizer"
_BUCKET_BYTES: Final = 25 * 1024**2
"""DDP's default: its first bucket is smaller, the others are up to this large."""

_FOUND: Final = "avoidable collectives"

_Row = CollectiveStat | MatchedCollectiveStat


class Avoidable(NamedTuple):
    """A loss by collectives that need not be there."""

    loss: Loss
    is_about: Callable[[_Row], bool]
    ns: dict[str | None, float]
    """What of its saving is of each dimension."""


def find_avoidable(context: LossContext) -> list[Avoidable]:
    """Return what the rules of this module report."""
    return list(_found(context).values())


def _found(context: LossContext) -> dict[str, Avoidable]:
    """Return what they report by rule; computed once for a run, because rules on transfers need it, too."""
    if _FOUND not in context.known:
        rows = ((name, find(context)) for name, find in _FINDS.items())
        context.known[_FOUND] = {name: one for name, one in rows if one is not None}
    return cast("dict[str, Avoidable]", context.known[_FOUND])


def reported_ns(found: Iterable[Avoidable], dimension: str | None) -> float:
    """Return the exposed time of a dimension, per step, that is promised already (ns)."""
    return sum(one.ns.get(dimension, 0.0) for one in found)


def unreported(found: Iterable[Avoidable], rows: Iterable[MatchedCollectiveStat]) -> list[MatchedCollectiveStat]:
    """Return the collectives that none of these losses is about."""
    return [row for row in rows if not any(one.is_about(row) for one in found)]


# ---- gradients -----------------------------------------------------------------------------------------------------


def _each_micro_batch(context: LossContext) -> Avoidable | None:
    batches = micro_batches(context.run)
    if batches < 2 or not reduced_each(context.run, batches):
        return None
    saving_ns = _saving(context, _is_bucket, (batches - 1) / batches)
    saved_ns = sum(saving_ns.values())
    if context.share(saved_ns) < MIN_SHARE:
        return None
    loss = Loss(
        cause="each_micro_batch",
        row="communication",
        phase="backward",
        facts=(fact("each_micro_batch", count=batches),),
        evidence={"micro_batches": float(batches), "exposed_ns": sum(_exposed(context, _is_bucket).values())},
        remedy=(fact("no_sync", skipped=batches - 1, count=batches),),
        per_step_ns=saved_ns,
        # Where a replay does not explain the waiting, the bound is all that is known.
        change=REDUCED_ONCE if context.predicted_saving(REDUCED_ONCE) is not None else None,
    )
    return Avoidable(loss, _is_bucket, saving_ns)


def _is_bucket(row: _Row) -> bool:
    return row.ddp_bucket and not _is_of_use(row)


def _saving(context: LossContext, is_about: Callable[[_Row], bool], part: float) -> dict[str | None, float]:
    """Return what is saved without a part of some collectives, by dimension: what ranks wait for each other stays."""
    transfers = {one.name: one.transfer_ns / one.exposed_ns for one in context.dimensions() if one.exposed_ns}
    exposed = _exposed(context, is_about)
    return {name: part * ns * min(1.0, transfers.get(name, 1.0)) for name, ns in exposed.items()}


def _exposed(context: LossContext, is_about: Callable[[_Row], bool]) -> dict[str | None, float]:
    """Return the exposed time of collectives by dimension, the mean per step and rank (ns)."""
    sums: dict[str | None, float] = defaultdict(float)
    for rank in context.run.ranks:
        for row in filter(is_about, rank.collectives):
            sums[row.dimension] += row.exposed_ns / context.rank_steps
    return sums


# ---- tiny ----------------------------------------------------------------------------------------------------------


def _tiny(context: LossContext) -> Avoidable | None:
    """Find the collectives that are mostly latency whose transfers take longest; what would replace them takes time."""
    steps, rows = context.recorded_steps, max(_latency_groups(context), key=_transfer_ns, default=[])
    if not rows or not steps:
        return None
    many, carried = sum(row.count for row in rows) / steps, sum(row.count * (row.bytes or 0) for row in rows) / steps
    fewest = _fewest_buckets(context, carried) if rows[0].ddp_bucket else 1
    sizes = {row.bytes for row in rows}
    about = rows[0].operator, rows[0].group, rows[0].ddp_bucket

    def is_about(row: _Row) -> bool:
        return (row.operator, row.group, row.ddp_bucket) == about and row.bytes in sizes

    saving_ns = _saving(context, is_about, max(0.0, 1 - fewest / many))
    saved_ns = sum(saving_ns.values())
    if context.share(saved_ns) < MIN_SHARE:
        return None
    remedy = fact("larger_buckets", own=context.is_own) if rows[0].ddp_bucket else fact("combine_collectives")
    loss = Loss(
        cause="tiny_collectives",
        row="communication",
        code=rows[0].operator,
        facts=(fact("tiny_collectives", count=many, operator=rows[0].operator, bytes=round(carried)),),
        evidence={"collectives": many, "bytes": carried, "transfer_ns": _transfer_ns(rows) / steps},
        remedy=(remedy,),
        per_step_ns=saved_ns,
    )
    return Avoidable(loss, is_about, saving_ns)


def _fewest_buckets(context: LossContext, carried: float) -> int:
    """Return how many buckets DDP would make of so many bytes per step by default."""
    batches = micro_batches(context.run)
    passes = batches if reduced_each(context.run, batches) else 1
    return passes * (1 + ceil(carried / passes / _BUCKET_BYTES))


def _latency_groups(context: LossContext) -> Iterator[list[MatchedCollectiveStat]]:
    """Yield collectives whose time is known, mostly latency, and not needed once for each, by what could be one.

    Those that split a layer or its input depend on each other; what other rules are about has a better remedy.
    """
    groups: dict[tuple[object, ...], list[MatchedCollectiveStat]] = defaultdict(list)
    repeated, buffers = _each_micro_batch(context) is not None, _buffers(context) is not None
    for row in context.run.cross_rank.collectives if context.run.cross_rank else ():
        may_join = row.dimension is None or not _DEPENDENT & set(row.dimension.split("+"))
        has_own = _is_of_use(row) or (repeated and row.ddp_bucket) or (buffers and _is_buffer(row))
        if may_join and is_latency(context, row) and not has_own:
            groups[row.operator, row.group, row.ddp_bucket].append(row)
    yield from groups.values()


def _transfer_ns(rows: list[MatchedCollectiveStat]) -> float:
    return sum(row.count * (row.transfer_ns or 0) for row in rows)


# ---- of DDP --------------------------------------------------------------------------------------------------------


def _unused(context: LossContext) -> Avoidable | None:
    return _all_of(context, "unused_parameters", _is_of_use, "all_are_used")


def _is_of_use(row: _Row) -> bool:
    """Return whether DDP tells the ranks which parameters got gradients: no gradient is of this type."""
    return row.ddp_bucket and row.dtype == "int32"


def _buffers(context: LossContext) -> Avoidable | None:
    phases = {phase.name for rank in context.run.ranks for phase in rank.phases}
    # ZeRO's optimizer broadcasts parameters, which must be.
    if DDP_FORWARD not in phases or any(name.startswith(_ZERO) for name in phases):
        return None
    return _all_of(context, "broadcast_buffers", _is_buffer, "keep_buffers")


def _is_buffer(row: _Row) -> bool:
    """Return whether it is a broadcast of replicas: what a program broadcasts itself has no dimension."""
    return row.operator == "broadcast" and row.dimension in REPLICATED


def _all_of(context: LossContext, cause: str, is_about: Callable[[_Row], bool], remedy: str) -> Avoidable | None:
    """Find collectives of which none is needed, from one per step on."""
    exposed = _exposed(context, is_about)
    exposed_ns = sum(exposed.values())
    count = sum(row.count for rank in context.run.ranks for row in filter(is_about, rank.collectives))
    each = count / context.rank_steps
    if each < 1 or context.share(exposed_ns) < MIN_SHARE:
        return None
    loss = Loss(
        cause=cause,
        row="communication",
        facts=(fact(cause, count=round(each)),),
        evidence={"collectives": each, "exposed_ns": exposed_ns, "exposed_share": context.share(exposed_ns)},
        remedy=(fact(remedy),),
        per_step_ns=exposed_ns,
    )
    return Avoidable(loss, is_about, exposed)


# ---- rules ---------------------------------------------------------------------------------------------------------


_FINDS: Final[dict[str, Callable[[LossContext], Avoidable | None]]] = {
    "each_micro_batch": _each_micro_batch,
    "tiny_collectives": _tiny,
    "unused_parameters": _unused,
    "broadcast_buffers": _buffers,
}


def _rule(name: str) -> Callable[[LossContext], Loss | None]:
    def rule(context: LossContext) -> Loss | None:
        found = _found(context).get(name)
        return found.loss if found else None

    return rule


AVOIDABLE: Final[Rules] = {name: _rule(name) for name in _FINDS}
