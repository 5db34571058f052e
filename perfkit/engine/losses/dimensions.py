"""What to do about the communication of one dimension of parallelism; nothing where its dimension is unknown.

What helps one dimension does nothing for another: all-reduces of gradients become fewer per sample if gradients
accumulate, those of tensor parallelism grow with the tokens.
"""

from collections import defaultdict
from typing import Final

from perfkit.engine.losses.context import TINY_BYTES, DimensionTime, LossContext
from perfkit.records.aggregate import MAJORITY
from perfkit.records.cross_rank import MatchedCollectiveStat
from perfkit.records.facts import Facts, fact
from perfkit.records.rank import RankReport
from perfkit.records.run import RunReport

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
DDP_FORWARD: Final = "DistributedDataParallel.forward"
_OPTIMIZER_STEP: Final = "Optimizer.step#"


def reduces_gradients(context: LossContext, one: DimensionTime) -> bool:
    """Return whether a dimension averages gradients of whole replicas: a context-parallel one may take part."""
    return bool(one.parts & REPLICATED) and one.parts <= REPLICATED | _CONTEXT and not gathers_parameters(context, one)


def gathers_parameters(context: LossContext, one: DimensionTime) -> bool:
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


def is_whole_model(context: LossContext) -> bool:
    """Return whether each rank is known to have the whole model: neither split nor sharded."""
    if context.option("dp") not in (None, "ddp", "zero1"):
        return False
    found = context.dimensions()
    split = any(one.parts & _SPLITTING for one in found)
    return not split and not any(gathers_parameters(context, one) for one in found)


def reduce_transfer(context: LossContext, one: DimensionTime) -> Facts:
    """Return how to spend less time on a dimension's transfers; empty if it is unknown, or nothing is known to help.

    A pipeline's transfers are not reduced here: its waiting is what costs.
    """
    if gathers_parameters(context, one):
        return () if context.is_memory_full else (fact("gather_less", own=context.is_own),)
    if reduces_gradients(context, one):
        return _reduce_less(context, one)
    if one.parts == {"tp"}:
        divide = (fact("divide_activations"),) if context.option("sequence_parallel") is False else ()
        return () if context.is_memory_full else (fact("split_less"), *divide)
    if one.parts == _CONTEXT and not context.is_memory_full:
        return (fact("smaller_cp"),)
    if one.parts == {"ep"} and _reduces_most(context, one):
        times = 2 * _accumulated(context)
        return (fact("accumulate_shared", times=times) if context.is_own else fact("accumulate_shared_loop"),)
    if one.parts == {"ep"}:
        return _send_fewer_tokens(context, one)
    return ()


def synchronise_less(context: LossContext, one: DimensionTime | None) -> Facts:
    """Return how to synchronise less often in a dimension (None: unknown); empty where that is impossible."""
    if one is None or not reduces_gradients(context, one) or not _may_accumulate(context):
        return ()
    return (fact("synchronise_less", own=context.is_own),)


def wait_less(context: LossContext, one: DimensionTime | None) -> Facts:
    """Return what to do about waiting in a dimension (None: unknown) for ranks of which none is late."""
    # Where the load is known, another rule reports imbalance.
    is_load_known = any(row.imbalance is not None for row in context.run.divided_work)
    if one is not None and one.parts == {"ep"} and not is_load_known:
        return (fact("balance_experts"),)
    return (fact("see_timeline"),)


def _may_accumulate(context: LossContext) -> bool:
    """Return whether --accumulate helps: DeepSpeed reduces in each micro-step, a pipeline refuses it."""
    mesh = context.option("mesh")
    return context.option("dp") != "deepspeed" and not (isinstance(mesh, str) and "pp" in mesh)


def _reduce_less(context: LossContext, one: DimensionTime) -> Facts:
    if context.option("overlap") is False:
        return (fact("overlap"),)
    if _has_one_bucket(context, one):
        return (fact("smaller_buckets", own=context.is_own),)
    full = context.is_memory_full
    if context.is_own and not _may_accumulate(context):
        return () if full else (fact("larger_batch"),)
    if context.is_own:
        larger = () if full else (fact("or_larger_batch"),)
        return (fact("accumulate", times=2 * _accumulated(context)), *larger)
    larger = () if full else (fact("or_larger_batch_loop"),)
    return (fact("accumulate_loop", batches=micro_batches(context.run), larger=larger),)


def _has_one_bucket(context: LossContext, one: DimensionTime) -> bool:
    """Return whether DDP has all gradients of a dimension in one bucket, which nothing hides."""
    across, steps = context.run.cross_rank, context.recorded_steps
    rows = [row for row in across.collectives if row.ddp_bucket and row.dimension == one.name] if across else []
    if len({row.group for row in rows}) != 1 or any(row.bytes is None for row in rows):
        return False
    count = sum(row.count for row in rows)
    return count <= steps and sum((row.bytes or 0) * row.count for row in rows) > _FIRST_BUCKET_BYTES * count


def is_latency(context: LossContext, row: MatchedCollectiveStat) -> bool:
    """Return whether the time of collectives is mostly latency: by the fit, without one by their size."""
    if row.bytes is None or row.transfer_ns is None:
        return False
    fits = context.run.cross_rank.bandwidth_fits if context.run.cross_rank else []
    fits = [one for one in fits if (one.operator, one.group) == (row.operator, row.group)]
    alpha_ns = next((one.alpha_ns for one in fits if one.alpha_ns is not None), None)
    return row.bytes <= TINY_BYTES if alpha_ns is None else alpha_ns > MAJORITY * row.transfer_ns > 0


def micro_batches(run: RunReport) -> int:
    """Return how often DDP's model is called per update of its parameters; 1 if that is unknown or varies."""
    phases = [phase for rank in run.ranks for phase in rank.phases]
    calls = sum(phase.count for phase in phases if phase.name == DDP_FORWARD)
    updates = sum(phase.count for phase in phases if phase.name.startswith(_OPTIMIZER_STEP))
    return max(1, calls // updates) if updates and calls % updates == 0 else 1


def updates_of(rank: RankReport) -> int:
    """Return how often optimizers of a rank stepped in the recorded steps."""
    return sum(row.count for row in rank.phases if row.name.startswith(_OPTIMIZER_STEP))


def reduced_each(run: RunReport, batches: int) -> bool:
    """Return whether DDP reduces each bucket of gradients as often as there are micro-batches, not once per update."""
    counts: dict[tuple[int | None, str | None, int | None], int] = defaultdict(int)
    updates: dict[int | None, int] = {}
    for rank in run.ranks:
        updates[rank.rank] = updates_of(rank)
        for row in rank.collectives:
            if row.ddp_bucket:
                counts[rank.rank, row.group, row.bytes] += row.count
    each = [count / updates[rank] if updates[rank] else 0.0 for (rank, _, _), count in counts.items()]
    return bool(each) and all(many >= batches and many % batches == 0 for many in each)


def _accumulated(context: LossContext) -> int:
    given = context.option("accumulate")
    return given if isinstance(given, int) and given > 0 else 1


def _reduces_most(context: LossContext, one: DimensionTime) -> bool:
    """Return whether what transfers most in a dimension are DDP's gradients: those of what experts share."""
    across = context.run.cross_rank
    rows = [row for row in across.collectives if row.dimension == one.name] if across else []
    most = max(rows, key=lambda row: row.count * (row.transfer_ns or 0), default=None)
    return most is not None and most.ddp_bucket


def _send_fewer_tokens(context: LossContext, one: DimensionTime) -> Facts:
    """Return how experts exchange less, or over a faster network."""
    ways = [fact("experts_on_a_host")] if one.across_hosts else []
    top_k = context.option("top_k")
    if top_k is None:
        ways.append(fact("fewer_experts"))
    elif isinstance(top_k, int) and top_k > 1:  # perfkit's own experts have no capacity
        ways.append(fact("smaller_top_k", top_k=top_k - 1))
    return (ways[0], *(part for way in ways[1:] for part in (fact("or"), way))) if ways else ()
