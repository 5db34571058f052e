"""Bytes of activations: what the forward pass of a GPT keeps for backward, and what its loss needs.

The terms follow Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4:
of the 34 bytes per token and unit of width in 16 bits, 2 are dropout masks, and the other 16 numbers are counted here
in the bytes that the precision has. Fused attention keeps no scores.
"""

from typing import Final

from msgspec import Struct

from perfkit.tools.plan.formulas.context_and_experts import attention_bytes, backward_bytes, kept_bytes, ring_bytes
from perfkit.tools.plan.formulas.state import stream_bytes
from perfkit.tools.plan.layout import Layout
from perfkit.tools.plan.precision import FLOAT32_BYTES, Precision
from perfkit.tools.plan.shape import Shape

SOURCE: Final = "Korthikanti et al. (2022), section 4"

_STATISTICS: Final = 4 * FLOAT32_BYTES
"""Mean and 1 / standard deviation of two norms, float32, per token."""


class Activations(Struct, frozen=True, kw_only=True):
    """Bytes of one stage's activations on one rank."""

    layers_bytes: int
    """Kept of all layers, and micro-batches in flight, between forward and backward."""
    recomputed_bytes: int
    """Of the one layer that is being computed again, with checkpointing."""
    ends_bytes: int
    """Kept outside of the layers: token ids, the last norm, the loss."""
    loss_bytes: int
    """Needed besides while the loss's gradient is computed: two more of the size of the logits."""
    backward_bytes: int
    """Temporary gradients of activations in a layer's backward pass, less the activations that it has freed."""
    backward_is_ring: bool
    """Whether these are of ring attention, with its scores, and not of what is behind the attention."""


def layer_bytes(shape: Shape, layout: Layout, precision: Precision, samples: int, *, fused: bool) -> int:
    """Return what one layer keeps of `samples` samples, without checkpointing.

    Per token and unit of width: inputs of two norms in the residual's precision, their outputs, queries, keys and
    values (3), the attention's output, the hidden layer (4) before and after GELU. Tensor parallelism divides the last
    12 of these 16, sequence parallelism also the first two, with statistics and dropout masks. The norms' outputs are
    gathered and kept whole: Megatron-LM gathers them again in backward instead, and torch does not. Norms keep
    inputs in 32 bits even where layers exchange 16: accelerators' autocast converts them (a CPU's does not).
    """
    width, heads, tokens = shape.width or 0, shape.heads or 0, samples * (shape.sequence or 0) // layout.cp
    between = 2 * precision.residual * width + _STATISTICS
    if shape.dropout:
        between += 2 * width
    attention, mlp = 4 * precision.activation * width, 8 * precision.activation * width
    split = attention + (kept_bytes(shape, layout, precision) if shape.experts else mlp)
    if layout.cp > 1:
        split += attention_bytes(shape, precision)
    elif fused:
        split += 4 * heads
    else:
        masks = 1 + precision.activation if shape.dropout else 0
        split += heads * (shape.sequence or 0) * (precision.activation + masks)
    gathered = 2 * precision.activation * width
    return tokens * (-(-between // layout.between) + gathered + -(-split // layout.tp))


def activations_of(
    shape: Shape, layout: Layout, precision: Precision, samples: int, stage: int, *, fused: bool
) -> Activations | None:
    """Return the activations of one stage; None if the model's sizes are unknown.

    Args:
        precision: Bytes of its numbers.
        stage: Stage of the pipeline. With 1F1B stage k of n has n - k micro-batches in flight (Narayanan et al.,
            "Efficient Large-Scale Language Model Training", 2021, section 2.2).
        fused: Whether attention's scores are never written to memory.
    """
    if shape.layers is None or shape.width is None or shape.sequence is None:
        return None
    tokens = samples * shape.sequence // layout.cp
    layers = (stage + 1) * shape.layers // layout.pp - stage * shape.layers // layout.pp
    in_flight = min(layout.pp - stage, layout.micro_batches)
    full = layer_bytes(shape, layout, precision, samples, fused=fused or layout.checkpointing == "selective")
    inputs = tokens * shape.width * stream_bytes(layout, precision) // layout.between
    kept = inputs if layout.checkpointing == "full" else full
    last = stage == layout.pp - 1
    gradients, ring = tokens * _gradients(shape, layout, precision), ring_bytes(shape, layout, precision, samples)
    return Activations(
        layers_bytes=kept * layers * in_flight,
        recomputed_bytes=full if layout.checkpointing == "full" else 0,
        ends_bytes=_ends(shape, layout, precision, tokens, last=last) if shape.vocabulary else 0,
        loss_bytes=_loss_bytes(shape, layout, tokens) if last else 0,
        backward_bytes=max(gradients, ring),
        backward_is_ring=ring > gradients,
    )


def _gradients(shape: Shape, layout: Layout, precision: Precision) -> int:
    """Return the temporary gradients of a layer's backward pass, per token."""
    if shape.experts:
        return backward_bytes(shape, layout, precision)
    return (shape.width or 0) * (stream_bytes(layout, precision) + 4 * precision.activation)


def _ends(shape: Shape, layout: Layout, precision: Precision, tokens: int, *, last: bool) -> int:
    """Return what is kept outside of the layers: ids in 8 bytes; of the last stage its norm and its log-softmax."""
    if not last:
        return 8 * tokens
    width = shape.width or 0
    norm = (width * precision.residual + _STATISTICS // 2) // layout.between + width * precision.activation
    return tokens * (16 + norm + 4 * -(-(shape.vocabulary or 0) // layout.splits_logits))


def _loss_bytes(shape: Shape, layout: Layout, tokens: int) -> int:
    """Return what the loss's gradient takes, as float32 logits: two of them; of a split loss three of a rank's part."""
    copies = 3 if layout.loss_parallel else 2
    return copies * 4 * tokens * -(-(shape.vocabulary or 0) // layout.splits_logits)


def cast_bytes(entries: int, precision: Precision, *, gathered: bool) -> int:
    """Return the 16-bit copies of matrices that autocast keeps for backward.

    Parameters that are gathered come in 16 bits already.
    """
    return precision.activation * entries if precision.casts and not gathered else 0
