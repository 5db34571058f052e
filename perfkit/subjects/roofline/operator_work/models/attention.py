"""Fused attention: two products of matrices forward, five backward (scores are computed again).

As `torch.utils.flop_counter` counts: 2 b h s_q s_k (d_q + d_v) forward, without the softmax, and with the whole matrix
of scores where a causal mask lets half of it be skipped.
"""

from perfkit.subjects.roofline.operator_work.arguments import Arguments, Tensor, UnknownArgumentsError
from perfkit.subjects.roofline.operator_work.models import Work

_FLOAT = 4


def forward(arguments: Arguments) -> Work:
    """`_scaled_dot_product_*_attention(query, key, value, …)`: batch, heads, sequence, head size."""
    return _forward(arguments.tensor(0), arguments.tensor(1), arguments.tensor(2))


def backward(arguments: Arguments) -> Work:
    """`_scaled_dot_product_*_attention_backward(gradient, query, key, value, …)`."""
    return _backward(*(arguments.tensor(place) for place in range(4)))


def forward_by_sequence(arguments: Arguments) -> Work:
    """`_flash_attention_forward(query, key, value, …)`: batch, sequence, heads, head size."""
    return _forward(*(_heads_first(arguments.tensor(place)) for place in range(3)))


def backward_by_sequence(arguments: Arguments) -> Work:
    """`_flash_attention_backward(gradient, query, key, value, …)`: batch, sequence, heads, head size."""
    return _backward(*(_heads_first(arguments.tensor(place)) for place in range(4)))


def _heads_first(tensor: Tensor) -> Tensor:
    if len(tensor.shape) != 4:  # sequences of different lengths in one: the lengths are not recorded
        raise UnknownArgumentsError("the lengths of the sequences are not recorded")
    batch, sequence, heads, size = tensor.shape
    return tensor._replace(shape=(batch, heads, sequence, size))


def _forward(query: Tensor, key: Tensor, value: Tensor) -> Work:
    scores, size, value_size = _sizes(query, key, value)
    rows = query.elements // query.shape[-1] if query.shape[-1] else 0
    out_bytes = rows * value_size * query.item_bytes
    # Beside the output, the logarithm of the sum of each row, which backward needs.
    read = query.bytes + key.bytes + value.bytes
    return Work(2 * scores * (size + value_size), read + out_bytes + rows * _FLOAT, query.dtype)


def _backward(gradient: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Work:
    scores, size, value_size = _sizes(query, key, value)
    rows = query.elements // query.shape[-1] if query.shape[-1] else 0
    # Read: the gradient and the output, which have one shape, and the inputs; written: the gradients of the inputs.
    moved = 2 * gradient.bytes + 2 * (query.bytes + key.bytes + value.bytes) + rows * _FLOAT
    return Work(2 * scores * (3 * size + 2 * value_size), moved, query.dtype)


def _sizes(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, int, int]:
    """Return the number of scores over batch and heads, and the sizes of a key's and a value's head."""
    if {len(query.shape), len(key.shape), len(value.shape)} != {4}:
        raise UnknownArgumentsError("not batch, heads, sequence and head size")
    batch, heads, queries, size = query.shape
    fits = (key.shape[0], key.shape[3]) == (batch, size) and value.shape[:3] == key.shape[:3]
    if not fits or not key.shape[1] or heads % key.shape[1]:
        raise UnknownArgumentsError("query, key and value do not fit each other")
    return batch * heads * queries * key.shape[2], size, value.shape[3]
