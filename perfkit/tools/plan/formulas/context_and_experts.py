"""Context and expert parallelism: what ranks that divide sequences, or experts, hold and communicate.

Ring attention: Liu et al., "Ring Attention with Blockwise Transformers for Near-Infinite Context" (2023): keys and
values go round, in backward once more, and then their gradients. Products are in float32.

A mixture of experts: each token goes to `top_k` experts (Shazeer et al., "Outrageously Large Neural Networks", 2017).
Ranks that divide them exchange the tokens before and after they compute, and in backward the gradients of both
(Lepikhin et al., "GShard", 2020, section 3.2). How many tokens an expert gets is up to the router: formulas assume that
all get as many.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from perfkit.tools.plan.formulas.messages import BUCKET_BYTES, FIRST_BUCKET_BYTES, Message, message
from perfkit.tools.plan.formulas.state import local_tensors
from perfkit.tools.plan.layout import Layout
from perfkit.tools.plan.precision import FLOAT32_BYTES, Precision
from perfkit.tools.plan.shape import Shape, Tensor

EXPERTS_SOURCE: Final = "tensors that autograd saves in perfkit_workloads.gpt_experts"

_INDEX: Final = 8


def kept_bytes(shape: Shape, layout: Layout, precision: Precision) -> int:
    """Return what a mixture of experts keeps per token of the batch, beside its input.

    Per token, expert that it goes to and unit of width: the expert's input, its hidden layer (4) before and after GELU,
    its output, and that times its weight, in float32 where autocast computes the softmax in float32 (not on a CPU).
    With expert parallelism the output counts twice, before it is sent and after it has arrived. Besides three indices,
    four with expert parallelism, and the weight twice.
    """
    numbers = 10 * precision.activation + precision.residual
    indices = 3 * _INDEX + 2 * FLOAT32_BYTES
    if layout.ep > 1:
        numbers, indices = numbers + precision.activation, indices + _INDEX
    return shape.top_k * (numbers * (shape.width or 0) + indices)


def backward_bytes(shape: Shape, layout: Layout, precision: Precision) -> int:
    """Return the temporary gradients per token: of what experts take, and of one expert's hidden layer.

    Those of what experts return are as large as the outputs that backward has freed by then.
    """
    hidden = 4 * precision.activation * layout.ep / shape.experts
    return round((shape.width or 0) * (precision.residual + shape.top_k * (precision.activation + hidden)))


def unstacked_bytes(tensors: Iterable[Tensor], precision: Precision) -> int:
    """Return the gradients of each expert of a layer that backward holds while it stacks them to one tensor."""
    return precision.gradient * max((tensor.count for tensor in tensors if tensor.is_expert), default=0)


def expert_parallel(shape: Shape, layout: Layout, precision: Precision, samples: int) -> Iterator[Message]:
    """Yield the messages of a rank in one step, if all experts get the same number of tokens."""
    passes = 2 if layout.checkpointing == "full" else 1
    layers, tokens = shape.layers or 0, samples * (shape.sequence or 0)
    numbers = layers * tokens * shape.top_k * (shape.width or 0)
    # Inputs, and their gradients, are in the precision of the norm before the experts, outputs in that of matrices.
    size = numbers * (passes + 1) * (precision.residual + precision.activation)
    words = "tokens x top_k x width, to the experts and back, in each pass"
    yield message("ep", "all_to_all", layout.ep, 2 * (passes + 1) * layers, size, words)
    counts = passes * layers
    yield message("ep", "all_to_all", layout.ep, counts, counts * _INDEX * shape.experts, "tokens of each expert")
    if layout.shard > 1:
        own = [tensor for tensor in local_tensors(shape, layout, 0) if tensor.is_expert]
        size = precision.gradient * sum(tensor.count for tensor in own)
        yield message("dp", "all_reduce", layout.shard, _buckets(own, precision), size, "gradients of experts")


def _buckets(tensors: Iterable[Tensor], precision: Precision) -> int:
    """Return the number of buckets, each closed by the gradient that fills it."""
    count, held, limit = 0, 0, FIRST_BUCKET_BYTES
    for tensor in reversed([*tensors]):
        held += precision.gradient * tensor.count
        if held >= limit:
            count, held, limit = count + 1, 0, BUCKET_BYTES
    return count + (held > 0)


RING_SOURCE: Final = "Liu et al. (2023), as perfkit_workloads.ring_attention has it"

_SCORES: Final = 3
"""Tensors of the size of a block's scores that its backward pass holds together."""


def attention_bytes(shape: Shape, precision: Precision) -> int:
    """Return what attention keeps per token of a rank besides queries, keys, values and its output.

    The logarithm of each head's sum, and the output in float32 where that is another tensor.
    """
    copy = FLOAT32_BYTES * (shape.width or 0) if precision.activation < FLOAT32_BYTES else 0
    return FLOAT32_BYTES * (shape.heads or 0) + copy


def ring_bytes(shape: Shape, layout: Layout, precision: Precision, samples: int) -> int:
    """Return what the ring's backward pass holds, less what the MLP's has freed; 0 without context parallelism.

    Scores of a rank's queries and a rank's keys; keys and values, sent and received; gradients of keys, values,
    queries and the output.
    """
    if layout.cp == 1:
        return 0
    own, width = (shape.sequence or 0) // layout.cp, shape.width or 0
    scores = _SCORES * FLOAT32_BYTES * (shape.heads or 0) * own
    buffers = width * (4 * precision.activation + 4 * FLOAT32_BYTES)
    freed = width * (9 * precision.activation + precision.residual)
    return max(0, samples * own * (scores + buffers - freed))


def context_parallel(shape: Shape, layout: Layout, precision: Precision, samples: int) -> Iterator[Message]:
    """Yield the sends and receives of a rank in one step."""
    layers, turns = shape.layers or 0, layout.cp - 1
    numbers = 2 * samples * (shape.sequence or 0) // layout.cp * (shape.width or 0)
    again = turns if layout.checkpointing == "full" else 0
    passes = 2 * turns + again
    pairs, gradients = 2 * layers * passes, 2 * layers * layout.cp
    hidden = (turns / passes, 1 - turns / passes)
    size = pairs * numbers * precision.activation
    yield message("cp", "send_recv", layout.cp, pairs, size, "keys and values, in each pass", hidden=hidden)
    yield message(
        "cp", "send_recv", layout.cp, gradients, gradients * numbers * FLOAT32_BYTES, "their gradients, at the end"
    )
