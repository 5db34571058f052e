"""What sharding costs: all-gathers of parameters (FSDP) that are late, repeated or small, and unequal experts."""

from collections.abc import Callable, Iterator
from typing import Final

from perfkit.engine.losses.context import MANY, MIN_SHARE, TINY_BYTES, LossContext
from perfkit.engine.losses.loss import Loss, Rules
from perfkit.records.cross_rank import BandwidthFit, MatchedCollectiveStat
from perfkit.records.facts import Fact, fact
from perfkit.records.per_rank.sharding import ParameterGathers, PassPhase
from perfkit.records.rank import RankReport

_NO_SHARDS: Final = frozenset({"tp", "cp", "ep", "pp"})
"""Dimensions along which whole parameters are divided for good: what they gather are activations."""
_UNEQUAL: Final = 1.2
"""Tokens of the fullest rank, as a multiple of the mean, from which the load counts as unequal."""
_PASSES: Final[tuple[PassPhase, ...]] = ("forward", "backward")


def _least_per_step(context: LossContext, of_row: Callable[[ParameterGathers], int], phase: PassPhase) -> float:
    """Return the sum of a figure over the all-gathers of a phase, per step, on the rank with the least.

    Durations include waiting for late ranks, which no change of the all-gathers saves; the latest rank waits least.
    """
    sums = [
        sum(of_row(row) for row in rank.sharded_parameters.gathers if row.phase == phase) / len(rank.steps)
        for rank in _sharded(context)
        if rank.sharded_parameters
    ]
    return min(sums, default=0.0)


def _sharded(context: LossContext) -> list[RankReport]:
    return [rank for rank in context.run.ranks if rank.sharded_parameters and rank.steps]


def _rows(context: LossContext, phase: PassPhase) -> Iterator[ParameterGathers]:
    """Yield the all-gathers of a phase, of all ranks."""
    for rank in _sharded(context):
        gathers = rank.sharded_parameters.gathers if rank.sharded_parameters else []
        yield from (row for row in gathers if row.phase == phase)


def fsdp_prefetch(context: LossContext) -> Loss | None:
    """All-gathers of parameters that could have been hidden."""
    saved = {phase: _least_per_step(context, lambda row: row.late_ns, phase) for phase in _PASSES}
    phase = max(saved, key=saved.__getitem__)
    rows = list(_rows(context, phase))
    late, count = sum(row.late for row in rows), sum(row.count for row in rows)
    # Where memory is full, no further layer fits.
    if not late or context.share(saved[phase]) < MIN_SHARE or context.is_memory_full:
        return None
    return Loss(
        cause="fsdp_prefetch",
        row="communication",
        phase=phase,
        facts=(fact("late_gathers", late=late, count=count, phase=phase),),
        evidence={"late": late, "all_gathers": count, "late_ns": saved[phase]},
        remedy=(fact("gather_earlier", how=_how_to_prefetch(context, phase)),),
        per_step_ns=saved[phase],
    )


def _how_to_prefetch(context: LossContext, phase: PassPhase) -> Fact:
    if context.option("dp") is None:
        return fact(f"prefetch_{phase}")
    layers = context.option("prefetch_layers")
    return fact("prefetch_layers", layers=layers + 1 if isinstance(layers, int) else 2)


def fsdp_reshard(context: LossContext) -> Loss | None:
    """Parameters that backward gathers again."""
    option = context.option("dp")
    # Parameters that stay gathered would not fit.
    if option not in (None, "zero3") or context.is_memory_full:
        return None
    # What only backward gathers would have to be gathered in forward instead.
    before = {row.layer for row in _rows(context, "forward")}
    price_ns = _least_per_step(context, lambda row: _price_ns(row) if row.layer in before else 0, "backward")
    if context.share(price_ns) < MIN_SHARE:
        return None
    parts = [rank.sharded_parameters for rank in _sharded(context) if rank.sharded_parameters]
    held = [part.regathered_bytes for part in parts]
    most = None if None in held else max(one or 0 for one in held)
    evidence = {"regathered_ns": price_ns, "share": context.share(price_ns)} | ({} if most is None else {"bytes": most})
    return Loss(
        cause="fsdp_reshard",
        row="communication",
        phase="backward",
        facts=(fact("gathered_again"),),
        evidence=evidence,
        remedy=(fact("keep_gathered", own=option is not None),),
        per_step_ns=price_ns,
    )


def _price_ns(row: ParameterGathers) -> int:
    """Return what all-gathers cost: their exposed time, and the whole duration where the host waits for them."""
    return row.exposed_ns - row.synchronous_ns + row.waited_ns


def fsdp_wrap(context: LossContext) -> Loss | None:
    """All-gathers so small that they are mostly latency."""
    across, steps = context.run.cross_rank, context.recorded_steps
    if across is None or not steps or not _sharded(context):
        return None
    for fit in across.bandwidth_fits:
        rows = [row for row in across.collectives if _is_gather(row, fit)]
        if fit.operator == "all_gather" and rows and (loss := _merge_units(context, fit, rows, steps)):
            return loss
    return None


def _is_gather(row: MatchedCollectiveStat, fit: BandwidthFit) -> bool:
    known = (row.operator, row.group) == (fit.operator, fit.group) and row.bytes is not None
    # Parameters may be sharded along a dimension joined to one of these, such as `shard+cp`.
    shards = row.dimension is not None and not _NO_SHARDS.issuperset(row.dimension.split("+"))
    return known and shards and (row.bytes or 0) > TINY_BYTES


def _merge_units(context: LossContext, fit: BandwidthFit, rows: list[MatchedCollectiveStat], steps: int) -> Loss | None:
    """Return the loss if the all-gathers of one group are many, and below the size at which latency is half."""
    knee = _knee_bytes(fit)
    small = [row for row in rows if knee is not None and (row.bytes or 0) < knee]
    count = sum(row.count for row in small) / steps
    if knee is None or fit.alpha_ns is None or count < MANY:
        return None
    exposed_ns = sum(_least_per_step(context, lambda row: row.exposed_ns, phase) for phase in _PASSES)
    saving_ns = min(fit.alpha_ns * count / 2, exposed_ns)
    if context.share(saving_ns) < MIN_SHARE:
        return None
    each = sum(row.count * (row.bytes or 0) for row in small) / sum(row.count for row in small)
    evidence = {"all_gathers": count, "bytes": each, "latency_ns": fit.alpha_ns, "knee_bytes": knee}
    return Loss(
        cause="fsdp_wrap",
        row="communication",
        facts=(fact("small_gathers", count=count, bytes=round(each)),),
        evidence=evidence,
        remedy=(fact("larger_units"),),
        per_step_ns=saving_ns,
    )


def _knee_bytes(fit: BandwidthFit) -> float | None:
    """Return the size S at which latency and transfer take the same time: alpha = factor * S / beta."""
    if not fit.alpha_ns or not fit.beta or not fit.group_size or fit.group_size < 2:
        return None
    factor = (fit.group_size - 1) / fit.group_size
    return fit.alpha_ns * fit.beta / 1e9 / factor


def expert_imbalance(context: LossContext) -> Loss | None:
    """Waiting for ranks whose experts get more tokens."""
    row = next((one for one in context.run.divided_work if one.dimension == "ep"), None)
    if row is None or row.imbalance is None or row.wait_ns is None or row.imbalance < _UNEQUAL:
        return None
    # What is waited for and hidden costs nothing.
    lost_ns = min(row.wait_ns, row.exposed_ns)
    if context.share(lost_ns) < MIN_SHARE:
        return None
    return Loss(
        cause="expert_imbalance",
        facts=(fact("expert_imbalance", imbalance=row.imbalance, ns=lost_ns),),
        evidence={"imbalance": row.imbalance, "wait_ns": lost_ns},
        remedy=(fact("balance_experts"),),
        per_step_ns=lost_ns,
    )


LOSSES: Final[Rules] = {
    "fsdp_prefetch": fsdp_prefetch,
    "fsdp_reshard": fsdp_reshard,
    "fsdp_wrap": fsdp_wrap,
    "expert_imbalance": expert_imbalance,
}
