"""What ranks that divide each layer communicate: tensor parallelism, with or without sequence parallelism.

Shoeybi et al., "Megatron-LM" (2019), section 3: two all-reduces per layer and pass. Korthikanti et al., "Reducing
Activation Recomputation in Large Transformer Models" (2022), section 4.2.2: a reduce-scatter and an all-gather in place
of each. A layer that is computed again, up to the last activation that its backward pass needs, repeats what its
attention communicates, and the all-gather before its MLP.
"""

from collections.abc import Iterator
from typing import Final

from perfkit.planning.formulas.messages import Message, message
from perfkit.planning.formulas.state import gathers, local_tensors, stream_bytes
from perfkit.planning.layout import Layout
from perfkit.planning.precision import Precision
from perfkit.planning.shape import Shape

_SINGLE: Final = 4


def tensor_parallel(shape: Shape, layout: Layout, precision: Precision, samples: int, stage: int) -> Iterator[Message]:
    """Yield the messages of a rank of a stage in one step.

    Args:
        shape: The model.
        layout: How it is shared.
        precision: Bytes of its numbers.
        samples: Of one micro-batch.
        stage: Stage of the pipeline.
    """
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
        yield from _norms(shape, layout, precision, stage)
    else:
        words = "4 per layer of tokens x width"
        yield activations("all_reduce", 2 * layers + again, 2 * layers + last + first, words)
    if layout.loss_parallel and shape.vocabulary:
        # Of each token the largest logit, the sum of the exponentials and the logit of its target, in float32.
        yield message("tp", "all_reduce", layout.tp, 3, 3 * _SINGLE * tokens, "the split loss")
    elif last and shape.vocabulary:
        size = tokens * shape.vocabulary * precision.activation
        yield message("tp", "all_gather", layout.tp, layout.micro_batches, size, "logits")


def _norms(shape: Shape, layout: Layout, precision: Precision, stage: int) -> Iterator[Message]:
    """Yield the sums of the norms' gradients, of which each rank has those of its part of the sequence."""
    norms = [tensor for tensor in local_tensors(shape, layout, stage) if tensor.is_norm]
    if norms:
        count = len(norms) * layout.micro_batches
        entry = precision.gathered if gathers(layout) else precision.gradient
        size = entry * sum(tensor.count for tensor in norms) * layout.micro_batches
        yield message("tp", "all_reduce", layout.tp, count, size, "gradients of norms")
