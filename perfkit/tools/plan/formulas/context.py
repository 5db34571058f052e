"""Context parallelism: what ring attention keeps and holds, and what ranks that divide each sequence communicate.

Liu et al., "Ring Attention with Blockwise Transformers for Near-Infinite Context" (2023): keys and values go round, in
backward once more, and then their gradients. Products are in float32.
"""

from collections.abc import Iterator
from typing import Final

from perfkit.tools.plan.formulas.messages import Message, message
from perfkit.tools.plan.layout import Layout
from perfkit.tools.plan.precision import FLOAT32_BYTES, Precision
from perfkit.tools.plan.shape import Shape

SOURCE: Final = "Liu et al. (2023), as perfkit_workloads.ring_attention has it"

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
    """Yield the sends and receives of a rank in one step.

    Args:
        shape: The model.
        layout: How it is shared.
        precision: Bytes of its numbers.
        samples: Of the ranks that divide their sequences.
    """
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
