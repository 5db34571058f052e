"""Bytes of activations: what the forward pass of a GPT keeps for backward, and what its loss needs.

The terms follow Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models" (2022), section 4:
of the 34 bytes per token and unit of width in 16 bits, 2 are dropout masks, and the other 16 numbers are counted here
in the bytes that the precision has. Fused attention keeps no scores.

Ring attention: Liu et al., "Ring Attention with Blockwise Transformers for Near-Infinite Context" (2023). Products are
in float32. A mixture of experts: each token goes to `top_k` experts (Shazeer et al., "Outrageously Large Neural
Networks", 2017). How many tokens an expert gets is up to the router: formulas assume that all get as many.
"""

from typing import Final

from msgspec import Struct

from perfkit.tools.plan.formulas.stage import Stage
from perfkit.tools.plan.precision import FLOAT32_BYTES

SOURCE: Final = "Korthikanti et al. (2022), section 4"
EXPERTS_SOURCE: Final = "tensors that autograd saves in perfkit_workloads.gpt_experts"
RING_SOURCE: Final = "Liu et al. (2023), as perfkit_workloads.ring_attention has it"

INDEX_BYTES: Final = 8
_STATISTICS: Final = 4 * FLOAT32_BYTES
"""Mean and 1 / standard deviation of two norms, float32, per token."""
_SCORES: Final = 3
"""Tensors of the size of a block's scores that its backward pass holds together."""


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


def activations_of(stage: Stage) -> Activations | None:
    """Return the activations of a stage; None if the model's sizes are unknown.

    With 1F1B stage k of n has n - k micro-batches in flight (Narayanan et al., "Efficient Large-Scale Language Model
    Training", 2021, section 2.2).
    """
    shape, layout = stage.shape, stage.layout
    if shape.layers is None or shape.width is None or shape.sequence is None:
        return None
    in_flight = min(layout.pp - stage.index, layout.micro_batches)
    full, checkpointed = _layer_bytes(stage), layout.checkpointing == "full"
    inputs = stage.own_tokens * stage.width * stage.stream_bytes // layout.between
    gradients, ring = stage.own_tokens * _gradients(stage), _ring_bytes(stage)
    return Activations(
        layers_bytes=(inputs if checkpointed else full) * stage.layers * in_flight,
        recomputed_bytes=full if checkpointed else 0,
        ends_bytes=_ends(stage) if shape.vocabulary else 0,
        loss_bytes=_loss_bytes(stage) if stage.is_last else 0,
        backward_bytes=max(gradients, ring),
        backward_is_ring=ring > gradients,
    )


def _layer_bytes(stage: Stage) -> int:
    """Return what one layer keeps of a micro-batch, without checkpointing of the whole layer.

    Per token and unit of width: inputs of two norms in the residual's precision, their outputs, queries, keys and
    values (3, fewer with grouped queries), the attention's output, the hidden layer (4) before and after GELU; of a
    gated one both halves, one of them also after its activation, and their product. Tensor parallelism divides the last
    12 of these 16, sequence parallelism also the first two, with statistics and dropout masks. The norms' outputs are
    gathered and kept whole: Megatron-LM gathers them again in backward instead, and torch does not. Norms keep
    inputs in 32 bits even where layers exchange 16: accelerators' autocast converts them (a CPU's does not).
    """
    shape, layout, precision, width = stage.shape, stage.layout, stage.precision, stage.width
    heads = shape.heads or 0
    between = 2 * precision.residual * width + _STATISTICS + (2 * width if shape.dropout else 0)
    attention = round((2 + 2 * shape.grouping) * precision.activation * width)
    mlp = (4 if shape.gated else 2) * precision.activation * stage.hidden
    split = attention + (_expert_bytes(stage) if shape.experts else mlp)
    if layout.cp > 1:
        # The logarithm of each head's sum, and the output in float32 where that is another tensor.
        split += FLOAT32_BYTES * (heads + (width if precision.activation < FLOAT32_BYTES else 0))
    elif stage.fused or layout.checkpointing == "selective":
        split += 4 * heads
    else:
        masks = 1 + precision.activation if shape.dropout else 0
        split += heads * (shape.sequence or 0) * (precision.activation + masks)
    gathered = 2 * precision.activation * width
    return stage.own_tokens * (-(-between // layout.between) + gathered + -(-split // layout.tp))


def _expert_bytes(stage: Stage) -> int:
    """Return what a mixture of experts keeps per token of the batch, beside its input.

    Per token, expert that it goes to and unit of width: the expert's input, its hidden layer (4) before and after GELU,
    its output, and that times its weight, in float32 where autocast computes the softmax in float32 (not on a CPU).
    With expert parallelism the output counts twice, before it is sent and after it has arrived. Besides three indices,
    four with expert parallelism, and the weight twice.
    """
    sent = int(stage.layout.ep > 1)
    numbers = (10 + sent) * stage.precision.activation + stage.precision.residual
    return stage.shape.top_k * (numbers * stage.width + (3 + sent) * INDEX_BYTES + 2 * FLOAT32_BYTES)


def _gradients(stage: Stage) -> int:
    """Return the temporary gradients of a layer's backward pass, per token.

    Of experts, those of what they take, and of one expert's hidden layer: those of what they return are as large as the
    outputs that backward has freed by then.
    """
    shape, activation = stage.shape, stage.precision.activation
    if not shape.experts:
        return stage.width * stage.stream_bytes + (2 if shape.gated else 1) * stage.hidden * activation
    hidden = 4 * activation * stage.layout.ep / shape.experts
    return round(stage.width * (stage.precision.residual + shape.top_k * (activation + hidden)))


def _ring_bytes(stage: Stage) -> int:
    """Return what the ring's backward pass holds, less what the MLP's has freed; 0 without context parallelism.

    Scores of a rank's queries and a rank's keys; keys and values, sent and received; gradients of keys, values,
    queries and the output.
    """
    shape, precision, width = stage.shape, stage.precision, stage.width
    if stage.layout.cp == 1:
        return 0
    own = (shape.sequence or 0) // stage.layout.cp
    scores = _SCORES * FLOAT32_BYTES * (shape.heads or 0) * own
    buffers = width * (4 * precision.activation + 4 * FLOAT32_BYTES)
    freed = width * (9 * precision.activation + precision.residual)
    return max(0, stage.samples * own * (scores + buffers - freed))


def _ends(stage: Stage) -> int:
    """Return what is kept outside of the layers: ids in 8 bytes; of the last stage its norm and its log-softmax."""
    if not stage.is_last:
        return 8 * stage.own_tokens
    layout, precision, width = stage.layout, stage.precision, stage.width
    norm = (width * precision.residual + _STATISTICS // 2) // layout.between + width * precision.activation
    return stage.own_tokens * (16 + norm + 4 * -(-(stage.shape.vocabulary or 0) // layout.splits_logits))


def _loss_bytes(stage: Stage) -> int:
    """Return what the loss's gradient takes, as float32 logits: two of them; of a split loss three of a rank's part."""
    copies = 3 if stage.layout.loss_parallel else 2
    return copies * 4 * stage.own_tokens * -(-(stage.shape.vocabulary or 0) // stage.layout.splits_logits)
