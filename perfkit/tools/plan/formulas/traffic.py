"""What a rank communicates in one step, by dimension: bytes as messages and on the wire.

Tensor parallelism: Shoeybi et al., "Megatron-LM" (2019), section 3: two all-reduces per layer and pass. Korthikanti et
al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4.2.2: a reduce-scatter and an
all-gather in place of each. A layer that is computed again, up to the last activation that its backward pass needs,
repeats what its attention communicates, and the all-gather before its MLP.

Ring attention (Liu et al., 2023): keys and values go round, in backward once more, and then their gradients. Ranks that
divide experts exchange the tokens before and after they compute, and in backward the gradients of both (Lepikhin et
al., "GShard", 2020, section 3.2).

ZeRO++: Wang et al., "ZeRO++: Extremely Efficient Collective Communication for Giant Model Training" (2023), section 3:
between hosts 0.5 M and 0.25 M in place of 3 M for M bytes of parameters in 16 bits.
"""

from collections.abc import Iterable, Iterator
from math import ceil, log2
from typing import Final, NamedTuple

from perfkit.tools.plan.formulas.activations import INDEX_BYTES
from perfkit.tools.plan.formulas.stage import Stage, count
from perfkit.tools.plan.layout import SHARDED, Layout
from perfkit.tools.plan.precision import FLOAT32_BYTES
from perfkit.tools.plan.shape import Tensor

_BUCKET_BYTES: Final = 25 * 2**20
"""DDP's buckets; the first is smaller, so that averaging begins early."""
_FIRST_BUCKET_BYTES: Final = 2**20
_BACKWARD: Final = (0.0, 1.0)


class Message(NamedTuple):
    """Messages of one operator along one dimension, in one step of a rank."""

    dimension: str
    operator: str
    ranks: int
    number: int
    bytes: int
    """Of all together."""
    formula: str
    hidden: tuple[float, float] = (0.0, 0.0)
    """Of their time, what compute of forward and of backward passes can hide, which does not need them."""

    @property
    def sent_bytes(self) -> int:
        """Bytes that a rank sends with the ring algorithm: the busbw factor of metrics.md section 5 times the size."""
        factor = {"all_reduce": 2 * (self.ranks - 1) / self.ranks, "broadcast": 1.0, "send_recv": 0.5}
        return round(self.bytes * factor.get(self.operator, (self.ranks - 1) / self.ranks))


def hops(ranks: int) -> int:
    """Return how many messages one after another a collective takes at least: a tree's depth."""
    return max(1, ceil(log2(ranks)))


def messages_of(stage: Stage, *, clips: bool) -> list[Message]:
    """Return what a rank of a stage sends and receives in one step."""
    layout = stage.layout
    found = [*_data_parallel(stage)]
    if layout.tp > 1:
        found += _tensor_parallel(stage)
    if layout.cp > 1:
        found += _context_parallel(stage)
    if layout.ep > 1:
        found += _expert_parallel(stage)
    if layout.pp > 1:
        found += _pipeline(stage)
    if clips:
        found += _norms(layout)
    return found


def _data_parallel(stage: Stage) -> Iterator[Message]:
    layout, precision, tensors = stage.layout, stage.precision, stage.tensors
    entries, ranks = count(stage.in_buckets), layout.shard * layout.cp * layout.ep
    dimension = "shard" if layout.dp == "hsdp" else "dp"
    for other in ("cp", "ep"):
        if other in layout.mesh:
            dimension = f"dp+{other}" if layout.shard > 1 else other
    reduced = precision.gradient
    if layout.dp not in SHARDED:
        if ranks == 1:
            return
        buckets = 1 + max(0, ceil((reduced * entries - _FIRST_BUCKET_BYTES) / _BUCKET_BYTES))
        yield Message(dimension, "all_reduce", ranks, buckets, reduced * entries, "gradients", _BACKWARD)
        if layout.dp == "zero1":
            size = precision.parameter * entries
            yield Message(dimension, "broadcast", ranks, len(tensors), size, "updated parameters")
        return
    whole = sum(ranks * -(-tensor.rows // ranks) * tensor.columns for tensor in tensors)
    units = 1 + len({tensor.layer for tensor in tensors if tensor.layer is not None})
    if layout.dp == "zero++":
        yield from _quantized(layout, whole, units, precision.gathered)
        return
    before_forward, before_backward = _gathers(stage)
    passes = before_forward + before_backward
    if ranks > 1:
        size = passes * precision.gathered * whole
        words = "parameters, before forward" + (" and before backward" if before_backward else "")
        hidden = (before_forward / passes, before_backward / passes)
        yield Message(dimension, "all_gather", ranks, passes * units, size, words, hidden)
        yield Message(dimension, "reduce_scatter", ranks, units, reduced * whole, "gradients", _BACKWARD)
    if layout.replicate > 1:
        size = reduced * whole // ranks
        yield Message("replicate", "all_reduce", layout.replicate, units, size, "parts of gradients", _BACKWARD)


def _quantized(layout: Layout, whole: int, units: int, gathered: int) -> Iterator[Message]:
    """Yield what ZeRO++ sends of `whole` parameters: 8 bits of each forward, 4 of each gradient; 16 inside of hosts.

    The scale of a block of numbers is not counted.
    """
    hosts = layout.shard // layout.hpz
    yield Message("dp", "all_gather", layout.shard, units, whole, "parameters, before forward, in 8 bits", (1.0, 0.0))
    words = "parameters, before backward, inside a host"
    yield Message("host", "all_gather", layout.hpz, units, gathered * whole, words, _BACKWARD)
    yield Message("host", "all_to_all", layout.hpz, units, whole // 2, "gradients in 4 bits, inside a host", _BACKWARD)
    size = whole // 2 // layout.hpz
    yield Message("hosts", "all_to_all", hosts, units, size, "their sums in 4 bits, between hosts", _BACKWARD)


def _gathers(stage: Stage) -> tuple[int, int]:
    """Return how often parameters are gathered before forward and before backward passes.

    In ZeRO-3 forward passes free parameters; backward passes keep them until torch reduces gradients after the last
    micro-batch. So in 1F1B a forward pass gathers if no backward pass precedes it, and a backward pass if a
    forward pass does.
    """
    if stage.layout.dp == "zero2":
        return 1, 0
    batches = stage.layout.micro_batches
    first = min(stage.layout.pp - stage.index, batches)
    return first, 1 + batches - first


def _tensor_parallel(stage: Stage) -> Iterator[Message]:
    layout, layers, vocabulary = stage.layout, stage.layers, stage.shape.vocabulary
    first, last = stage.index == 0, stage.is_last
    again = layers if layout.checkpointing == "full" else 0
    tokens = stage.tokens * layout.micro_batches

    def activations(operator: str, computed: int, residual: int, words: str) -> Message:
        """Return messages of tokens x width, those in the precision of matrices and those in the residual's.

        A matrix takes its input, and returns the gradient of it, in the precision of the norm before it.
        """
        size = tokens * stage.width * (computed * stage.precision.activation + residual * stage.stream_bytes)
        return Message("tp", operator, layout.tp, (computed + residual) * layout.micro_batches, size, words)

    words = "4 per layer of tokens x width"
    if layout.sequence_parallel:
        yield activations("reduce_scatter", 2 * layers + again, 2 * layers + last, words)
        yield activations("all_gather", 2 * layers, 2 * layers + 2 * again + last + first, words)
        if first:
            yield activations("all_reduce", 0, 1, "the embedding")
        yield from _norm_gradients(stage)
    else:
        yield activations("all_reduce", 2 * layers + again, 2 * layers + last + first, words)
    if layout.loss_parallel and vocabulary:
        # Of each token the largest logit, the sum of the exponentials and the logit of its target, in float32.
        yield Message("tp", "all_reduce", layout.tp, 3, 3 * FLOAT32_BYTES * tokens, "the split loss")
    elif last and vocabulary:
        size = tokens * vocabulary * stage.precision.activation
        yield Message("tp", "all_gather", layout.tp, layout.micro_batches, size, "logits")


def _norm_gradients(stage: Stage) -> Iterator[Message]:
    """Yield the sums of the norms' gradients, of which each rank has those of its part of the sequence."""
    norms, batches = [tensor for tensor in stage.tensors if tensor.is_norm], stage.layout.micro_batches
    if norms:
        entry = stage.precision.gathered if stage.gathers else stage.precision.gradient
        size = entry * count(norms) * batches
        yield Message("tp", "all_reduce", stage.layout.tp, len(norms) * batches, size, "gradients of norms")


def _context_parallel(stage: Stage) -> Iterator[Message]:
    layout, layers = stage.layout, stage.shape.layers or 0
    turns = layout.cp - 1
    numbers = 2 * stage.tokens // layout.cp * round(stage.width * stage.shape.grouping)
    passes = 2 * turns + (turns if layout.checkpointing == "full" else 0)
    pairs, gradients = 2 * layers * passes, 2 * layers * layout.cp
    hidden = (turns / passes, 1 - turns / passes)
    size = pairs * numbers * stage.precision.activation
    yield Message("cp", "send_recv", layout.cp, pairs, size, "keys and values, in each pass", hidden)
    size = gradients * numbers * FLOAT32_BYTES
    yield Message("cp", "send_recv", layout.cp, gradients, size, "their gradients, at the end")


def _expert_parallel(stage: Stage) -> Iterator[Message]:
    """Yield the messages of experts, if all get the same number of tokens."""
    shape, layout, precision = stage.shape, stage.layout, stage.precision
    passes, layers = 2 if layout.checkpointing == "full" else 1, shape.layers or 0
    # Inputs, and their gradients, are in the precision of the norm before the experts, outputs in that of matrices.
    numbers = layers * stage.tokens * shape.top_k * stage.width
    size = numbers * (passes + 1) * (precision.residual + precision.activation)
    words = "tokens x top_k x width, to the experts and back, in each pass"
    yield Message("ep", "all_to_all", layout.ep, 2 * (passes + 1) * layers, size, words)
    counts = passes * layers
    yield Message("ep", "all_to_all", layout.ep, counts, counts * INDEX_BYTES * shape.experts, "tokens of each expert")
    if layout.shard > 1:
        own = [tensor for tensor in stage.tensors if tensor.is_expert]
        size = precision.gradient * count(own)
        buckets = _buckets(own, precision.gradient)
        yield Message("dp", "all_reduce", layout.shard, buckets, size, "gradients of experts")


def _buckets(tensors: Iterable[Tensor], entry_bytes: int) -> int:
    """Return the number of buckets, each closed by the gradient that fills it."""
    closed, held, limit = 0, 0, _FIRST_BUCKET_BYTES
    for tensor in reversed([*tensors]):
        held += entry_bytes * tensor.count
        if held >= limit:
            closed, held, limit = closed + 1, 0, _BUCKET_BYTES
    return closed + (held > 0)


def _pipeline(stage: Stage) -> Iterator[Message]:
    """Yield activations and their gradients, to and from each neighbour; the gradients of the tied embedding."""
    layout = stage.layout
    neighbours = 1 if stage.index == 0 or stage.is_last else 2
    number = 2 * neighbours * layout.micro_batches
    size = number * (stage.tokens * stage.width // layout.between) * stage.stream_bytes
    yield Message("pp", "send_recv", 2, number, size, "activations and their gradients")
    tied = [tensor for tensor in stage.tensors if tensor.end == "tied"]
    if tied and neighbours == 1:
        shards = layout.shard if layout.dp in SHARDED else 1
        size = sum(4 * -(-tensor.rows // shards) * tensor.columns for tensor in tied)
        yield Message("pp", "all_reduce", 2, len(tied), size, "gradients of the tied embedding")


def _norms(layout: Layout) -> Iterator[Message]:
    """Yield the sums of squares of gradients: one for each way in which tensors are split, along each dimension."""
    data = ("shard" if layout.dp == "hsdp" else "dp") if layout.dp in SHARDED and layout.shard > 1 else None
    ways = 2 if layout.tp > 1 else 1
    sizes = {data: layout.shard, "tp": layout.tp, "pp": layout.pp, "ep": layout.ep}
    numbers = {name: int(size > 1) for name, size in sizes.items()} | {data: ways if data else 0}
    for dimension, number in numbers.items():
        if dimension is not None and number:
            size = FLOAT32_BYTES * number
            yield Message(dimension, "all_reduce", sizes[dimension], number, size, "norm of the gradients")
