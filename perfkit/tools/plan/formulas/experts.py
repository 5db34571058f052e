"""A mixture of experts: what its forward pass keeps, and what ranks that divide the experts communicate.

Each token goes to `top_k` experts (Shazeer et al., "Outrageously Large Neural Networks", 2017). Ranks that divide them
exchange the tokens before and after they compute, and in backward the gradients of both (Lepikhin et al., "GShard",
2020, section 3.2). How many tokens an expert gets is up to the router: formulas assume that all get as many.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from perfkit.tools.plan.formulas.messages import BUCKET_BYTES, FIRST_BUCKET_BYTES, Message, message
from perfkit.tools.plan.formulas.state import local_tensors
from perfkit.tools.plan.layout import Layout
from perfkit.tools.plan.precision import FLOAT32_BYTES, Precision
from perfkit.tools.plan.shape import Shape, Tensor

SOURCE: Final = "tensors that autograd saves in perfkit_workloads.gpt_experts"

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
    """Yield the messages of a rank in one step, if all experts get the same number of tokens.

    Args:
        shape: The model.
        layout: How it is shared.
        precision: Bytes of its numbers.
        samples: Of one rank.
    """
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
