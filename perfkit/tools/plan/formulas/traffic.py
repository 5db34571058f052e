"""What a rank communicates in one step, by dimension: bytes as messages and on the wire, and their time.

Tensor parallelism: Shoeybi et al., "Megatron-LM" (2019), section 3: two all-reduces per layer and pass. Korthikanti et
al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4.2.2: a reduce-scatter and an
all-gather in place of each. A layer that is computed again, up to the last activation that its backward pass needs,
repeats what its attention communicates, and the all-gather before its MLP.
"""

from collections.abc import Iterator
from math import ceil
from typing import Final

from perfkit.tools.plan.formulas.context_and_experts import context_parallel, expert_parallel
from perfkit.tools.plan.formulas.messages import BUCKET_BYTES, FIRST_BUCKET_BYTES, Message, message
from perfkit.tools.plan.formulas.state import gathers, local_tensors, stream_bytes
from perfkit.tools.plan.layout import SHARDED, Layout
from perfkit.tools.plan.precision import FLOAT32_BYTES, Precision
from perfkit.tools.plan.shape import Shape


def tensor_parallel(shape: Shape, layout: Layout, precision: Precision, samples: int, stage: int) -> Iterator[Message]:
    """Yield the messages of a rank of a stage in one step."""
    first, last = stage == 0, stage == layout.pp - 1
    layers = (stage + 1) * (shape.layers or 0) // layout.pp - stage * (shape.layers or 0) // layout.pp
    again = layers if layout.checkpointing == "full" else 0
    tokens = samples * (shape.sequence or 0) * layout.micro_batches
    numbers = tokens * (shape.width or 0)
    stream = stream_bytes(layout, precision)

    def activations(operator: str, computed: int, residual: int, words: str) -> Message:
        """Return messages of tokens x width, those in the precision of matrices and those in the residual's.

        A matrix takes its input, and returns the gradient of it, in the precision of the norm before it.
        """
        size = numbers * (computed * precision.activation + residual * stream)
        return message("tp", operator, layout.tp, (computed + residual) * layout.micro_batches, size, words)

    if layout.sequence_parallel:
        words = "4 per layer of tokens x width"
        yield activations("reduce_scatter", 2 * layers + again, 2 * layers + last, words)
        yield activations("all_gather", 2 * layers, 2 * layers + 2 * again + last + first, words)
        if first:
            yield activations("all_reduce", 0, 1, "the embedding")
        yield from _norm_gradients(shape, layout, precision, stage)
    else:
        words = "4 per layer of tokens x width"
        yield activations("all_reduce", 2 * layers + again, 2 * layers + last + first, words)
    if layout.loss_parallel and shape.vocabulary:
        # Of each token the largest logit, the sum of the exponentials and the logit of its target, in float32.
        yield message("tp", "all_reduce", layout.tp, 3, 3 * FLOAT32_BYTES * tokens, "the split loss")
    elif last and shape.vocabulary:
        size = tokens * shape.vocabulary * precision.activation
        yield message("tp", "all_gather", layout.tp, layout.micro_batches, size, "logits")


def _norm_gradients(shape: Shape, layout: Layout, precision: Precision, stage: int) -> Iterator[Message]:
    """Yield the sums of the norms' gradients, of which each rank has those of its part of the sequence."""
    norms = [tensor for tensor in local_tensors(shape, layout, stage) if tensor.is_norm]
    if norms:
        count = len(norms) * layout.micro_batches
        entry = precision.gathered if gathers(layout) else precision.gradient
        size = entry * sum(tensor.count for tensor in norms) * layout.micro_batches
        yield message("tp", "all_reduce", layout.tp, count, size, "gradients of norms")


_BACKWARD: Final = (0.0, 1.0)


def messages_of(
    shape: Shape, layout: Layout, precision: Precision, samples: int, stage: int, *, clips: bool
) -> list[Message]:
    """Return what a rank of a stage sends and receives in one step."""
    found = [*_data_parallel(shape, layout, precision, stage)]
    if layout.tp > 1:
        found += tensor_parallel(shape, layout, precision, samples, stage)
    if layout.cp > 1:
        found += context_parallel(shape, layout, precision, samples)
    if layout.ep > 1:
        found += expert_parallel(shape, layout, precision, samples)
    if layout.pp > 1:
        found += _pipeline(shape, layout, precision, samples, stage)
    if clips:
        found += _norms(layout)
    return found


def _data_parallel(shape: Shape, layout: Layout, precision: Precision, stage: int) -> Iterator[Message]:
    tensors = local_tensors(shape, layout, stage)
    averaged = tensors if layout.ep == 1 else [tensor for tensor in tensors if not tensor.is_expert]
    entries, ranks = sum(tensor.count for tensor in averaged), layout.shard * layout.cp * layout.ep
    dimension = "shard" if layout.dp == "hsdp" else "dp"
    for other in ("cp", "ep"):
        if other in layout.mesh:
            dimension = f"dp+{other}" if layout.shard > 1 else other
    reduced = 2 if precision.parameter == 2 else 4
    if layout.dp not in SHARDED:
        if ranks == 1:
            return
        count = 1 + max(0, ceil((reduced * entries - FIRST_BUCKET_BYTES) / BUCKET_BYTES))
        yield message(dimension, "all_reduce", ranks, count, reduced * entries, "gradients", hidden=_BACKWARD)
        if layout.dp == "zero1":
            size = precision.parameter * entries
            yield message(dimension, "broadcast", ranks, len(tensors), size, "updated parameters")
        return
    whole = sum(ranks * -(-tensor.rows // ranks) * tensor.columns for tensor in tensors)
    units = 1 + len({tensor.layer for tensor in tensors if tensor.layer is not None})
    before_forward, before_backward = _gathers(layout, stage)
    passes = before_forward + before_backward
    if ranks > 1:
        size = passes * precision.gathered * whole
        words = "parameters, before forward" + (" and before backward" if before_backward else "")
        hidden = (before_forward / passes, before_backward / passes)
        yield message(dimension, "all_gather", ranks, passes * units, size, words, hidden=hidden)
        yield message(dimension, "reduce_scatter", ranks, units, reduced * whole, "gradients", hidden=_BACKWARD)
    if layout.replicate > 1:
        size = reduced * whole // ranks
        yield message("replicate", "all_reduce", layout.replicate, units, size, "parts of gradients", hidden=_BACKWARD)


def _gathers(layout: Layout, stage: int) -> tuple[int, int]:
    """Return how often parameters are gathered before forward and before backward passes.

    In ZeRO-3 forward passes free parameters; backward passes keep them until torch reduces gradients after the last
    micro-batch. So in 1F1B a forward pass gathers if no backward pass precedes it, and a backward pass if a
    forward pass does.
    """
    if layout.dp == "zero2":
        return 1, 0
    first = min(layout.pp - stage, layout.micro_batches)
    return first, 1 + layout.micro_batches - first


def _pipeline(shape: Shape, layout: Layout, precision: Precision, samples: int, stage: int) -> Iterator[Message]:
    """Yield activations and their gradients, to and from each neighbour; the gradients of the tied embedding."""
    neighbours = 1 if stage in (0, layout.pp - 1) else 2
    count = 2 * neighbours * layout.micro_batches
    numbers = samples * (shape.sequence or 0) * (shape.width or 0) // layout.between
    size = count * numbers * stream_bytes(layout, precision)
    yield message("pp", "send_recv", 2, count, size, "activations and their gradients")
    tied = [tensor for tensor in local_tensors(shape, layout, stage) if tensor.end == "tied"]
    if tied and neighbours == 1:
        shards = layout.shard if layout.dp in SHARDED else 1
        size = sum(4 * -(-tensor.rows // shards) * tensor.columns for tensor in tied)
        yield message("pp", "all_reduce", 2, len(tied), size, "gradients of the tied embedding")


def _norms(layout: Layout) -> Iterator[Message]:
    """Yield the sums of squares of gradients: one for each way in which tensors are split, along each dimension."""
    data = ("shard" if layout.dp == "hsdp" else "dp") if layout.dp in SHARDED and layout.shard > 1 else None
    ways = 2 if layout.tp > 1 else 1
    sizes = {data: layout.shard, "tp": layout.tp, "pp": layout.pp, "ep": layout.ep}
    counts = {name: int(size > 1) for name, size in sizes.items()} | {data: ways if data else 0}
    for dimension, count in counts.items():
        if dimension is not None and count:
            size = FLOAT32_BYTES * count
            yield message(dimension, "all_reduce", sizes[dimension], count, size, "norm of the gradients")
