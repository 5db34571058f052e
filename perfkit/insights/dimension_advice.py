"""What to do about the communication of one dimension of parallelism; nothing where its dimension is unknown.

What helps one dimension does nothing for another: all-reduces of gradients become fewer per sample if gradients
accumulate, those of tensor parallelism grow with the tokens.
"""

from collections.abc import Iterator
from typing import Final

from perfkit.insights.run_context import DimensionTime, RunContext
from perfkit.schema.cross_rank import MatchedCollectiveStat

REPLICATED: Final = frozenset({"dp", "replicate"})
_SHARDED: Final = frozenset({"shard"})
_CONTEXT: Final = frozenset({"cp"})
_GATHERING: Final = ("zero2", "zero3", "hsdp")
"""Values of `--dp` with which parameters are gathered."""
_SPLITTING: Final = frozenset({"pp", "tp", "cp", "ep"})
_MIN_GATHERED: Final = 0.25
"""Share of a dimension's exposed time in all-gathers from which it gathers parameters: a metric takes less."""
_FIRST_BUCKET_BYTES: Final = 2 * 1024**2
"""DDP's first bucket has 1 MiB: a single larger one is all there is."""
_DEFAULT_BUCKET_BYTES: Final = 25 * 1024**2
_MANY_BUCKETS: Final = 8
_MOSTLY: Final = 0.5


def reduces_gradients(context: RunContext, one: DimensionTime) -> bool:
    """Return whether a dimension averages gradients of whole replicas: a context-parallel one may take part."""
    return bool(one.parts & REPLICATED) and one.parts <= REPLICATED | _CONTEXT and not gathers_parameters(context, one)


def gathers_parameters(context: RunContext, one: DimensionTime) -> bool:
    """Return whether a dimension gathers sharded parameters in each micro-step."""
    if not one.parts or not one.parts <= REPLICATED | _SHARDED | _CONTEXT or one.parts <= _CONTEXT:
        return False
    if one.parts & _SHARDED:
        return True
    own = context.option("dp")
    if own is not None:
        return own in _GATHERING
    rows = [row for rank in context.run.ranks for row in rank.collectives if row.dimension == one.name]
    gathered = sum(row.exposed_ns for row in rows if row.operator == "all_gather")
    return gathered > _MIN_GATHERED * sum(row.exposed_ns for row in rows)


def spans_hosts(one: DimensionTime) -> bool:
    """Return whether it is tensor parallelism with groups that are known to span hosts."""
    return one.parts == {"tp"} and one.across_hosts


def is_whole_model(context: RunContext) -> bool:
    """Return whether each rank is known to have the whole model: neither split nor sharded."""
    if context.option("dp") not in (None, "ddp", "zero1"):
        return False
    found = context.dimensions()
    split = any(one.parts & _SPLITTING for one in found)
    return not split and not any(gathers_parameters(context, one) for one in found)


def reduce_transfer(context: RunContext, one: DimensionTime) -> str | None:
    """Return how to spend less time on a dimension's transfers; None if it is unknown, or nothing is known to help.

    A pipeline's transfers are not reduced here: its waiting is what costs.
    """
    if gathers_parameters(context, one):
        return _gather_less(context)
    if reduces_gradients(context, one):
        return _reduce_less(context, one)
    if one.parts == {"tp"}:
        return _split_less(context)
    if one.parts == _CONTEXT and not context.is_memory_full:
        return "use a smaller cp: each rank then keeps more of the sequence and passes on less of it per sample"
    if one.parts == {"ep"} and _reduces_most(context, one):
        return _reduce_shared(context)
    if one.parts == {"ep"}:
        return " or ".join(_send_fewer_tokens(context, one)) or None
    return None


def synchronise_less(context: RunContext, one: DimensionTime | None) -> str | None:
    """Return how to synchronise less often in a dimension (None: unknown); None where that is impossible."""
    if one is None or not reduces_gradients(context, one) or not _may_accumulate(context):
        return None
    return "synchronise less often" + (": --accumulate" if context.option("accumulate") is not None else "")


def wait_less(context: RunContext, one: DimensionTime | None) -> str:
    """Return what to do about waiting in a dimension (None: unknown) for ranks of which none is late."""
    # Where the load is known, another rule reports imbalance.
    is_load_known = any(row.imbalance is not None for row in context.run.divided_work)
    if one is not None and one.parts == {"ep"} and not is_load_known:
        return "balance the load of the experts: an auxiliary loss, or a capacity factor"
    return "perfkit merge shows all ranks on one timeline: see what differs between them, and between steps"


def _gather_less(context: RunContext) -> str | None:
    if context.is_memory_full:
        return None
    own = context.option("accumulate") is not None
    larger = "use a larger --batch-size" if own else "increase the batch of a micro-step"
    return f"{larger}: each micro-step gathers the sharded parameters once, whatever its number of samples"


def _may_accumulate(context: RunContext) -> bool:
    """Return whether --accumulate helps: DeepSpeed reduces in each micro-step, a pipeline refuses it."""
    mesh = context.option("mesh")
    return context.option("dp") != "deepspeed" and not (isinstance(mesh, str) and "pp" in mesh)


def _reduce_less(context: RunContext, one: DimensionTime) -> str | None:
    if context.option("overlap") is False:
        return "remove --no-overlap, so that gradients are averaged during backward"
    if bucket := next(_bucket_advice(context, one), None):
        return bucket
    full = context.is_memory_full
    if context.option("accumulate") is not None and not _may_accumulate(context):
        return None if full else "use a larger --batch-size: fewer transfers per sample"
    if context.option("accumulate") is not None:
        larger = "" if full else ", or a larger --batch-size to overlap more of them"
        return f"use --accumulate {2 * _accumulated(context)} to halve the transfers per sample{larger}"
    larger = "" if full else ", or increase the batch per rank"
    return f"accumulate gradients over micro-steps{larger}: fewer transfers per sample"


def _bucket_advice(context: RunContext, one: DimensionTime) -> Iterator[str]:
    """Yield what to change about DDP's buckets: one that holds all gradients, or many that are nearly all latency."""
    across, steps = context.run.cross_rank, len({step.step for rank in context.run.ranks for step in rank.steps})
    rows = [row for row in across.collectives if row.ddp_bucket and row.dimension == one.name] if across else []
    groups = {row.group for row in rows}
    count = sum(row.count for row in rows) / max(1, steps)
    sizes = [row.bytes for row in rows]
    if len(groups) != 1 or not count or None in sizes:
        return
    option = "--bucket-cap-mb" if context.option("accumulate") is not None else "bucket_cap_mb"
    each = sum((row.bytes or 0) * row.count for row in rows) / sum(row.count for row in rows)
    if count <= 1 and each > _FIRST_BUCKET_BYTES:
        yield f"use a smaller {option}: with one bucket for all gradients no transfer overlaps with backward"
    elif count >= _MANY_BUCKETS and each < _DEFAULT_BUCKET_BYTES / 4 and _is_latency(context, rows):
        yield f"use a larger {option}: most of the time of these {count:.0f} buckets per step is latency"


def _is_latency(context: RunContext, rows: list[MatchedCollectiveStat]) -> bool:
    """Return whether the measured latency is most of the transfer time of these collectives."""
    across = context.run.cross_rank
    fits = across.bandwidth_fits if across else []
    alpha_ns = [one.alpha_ns for one in fits if (one.operator, one.group) == (rows[0].operator, rows[0].group)]
    spent_ns = sum(row.count * (row.transfer_ns or 0) for row in rows)
    latency_ns = sum(row.count * (alpha_ns[0] or 0) for row in rows) if alpha_ns else 0.0
    return latency_ns > _MOSTLY * spent_ns > 0


def _accumulated(context: RunContext) -> int:
    given = context.option("accumulate")
    return given if isinstance(given, int) and given > 0 else 1


def _reduces_most(context: RunContext, one: DimensionTime) -> bool:
    """Return whether what transfers most in a dimension are DDP's gradients: those of what experts share."""
    across = context.run.cross_rank
    rows = [row for row in across.collectives if row.dimension == one.name] if across else []
    most = max(rows, key=lambda row: row.count * (row.transfer_ns or 0), default=None)
    return most is not None and most.ddp_bucket


def _reduce_shared(context: RunContext) -> str:
    own = context.option("accumulate") is not None
    use = f"use --accumulate {2 * _accumulated(context)}" if own else "accumulate gradients over micro-steps"
    return f"{use}: gradients of what all experts share are then reduced less often per sample"


def _send_fewer_tokens(context: RunContext, one: DimensionTime) -> Iterator[str]:
    """Yield how experts exchange less, or over a faster network."""
    if one.across_hosts:
        yield "keep each group of experts on one host"
    own = context.option("top_k")
    if own is None:
        yield "send less: fewer experts per token (top-k), or a lower capacity factor"
    elif isinstance(own, int) and own > 1:  # perfkit's own experts have no capacity
        yield f"send less: fewer experts per token (--top-k {own - 1})"


def _split_less(context: RunContext) -> str | None:
    if context.is_memory_full:
        return None
    more = ""
    if context.option("sequence_parallel") is False:
        more = "; --sequence-parallel divides activations too, so that more fits"
    return f"use a smaller tp, if the model still fits: these transfers grow with the tokens{more}"
