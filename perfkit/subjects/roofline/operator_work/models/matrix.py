"""Operators on the units for matrix products: products, attention, convolutions.

A product has 2 m k n operations, as `torch.utils.flop_counter` counts; adding a bias is not counted.
"""

from math import prod

from perfkit.subjects.roofline.operator_work.arguments import (
    Arguments,
    Shape,
    Tensor,
    UnknownArgumentsError,
    Work,
    broadcast,
)

_SCALED_OUTPUT_BYTES = 2
"""The output of a product in 8 bits is usually bfloat16."""


def product(arguments: Arguments, *, rank: int, first: int = 0) -> Work:
    """`mm(a, b)`, `bmm(a, b)`; after a bias `addmm(bias, a, b)`, `baddbmm(bias, a, b)`; `rank` dimensions each."""
    left, right = arguments.tensor(first), arguments.tensor(first + 1)
    if left.shape[:-2] != right.shape[:-2]:
        raise UnknownArgumentsError("batches do not fit each other")
    work = _work(left, right, left.shape[:-1], right.shape[-1:], rank, left.item_bytes)
    return _with_bias(work, arguments.tensor(0)) if first else work


def scaled_mm(arguments: Arguments) -> Work:
    """`_scaled_mm(a, b, …)`, products of 8-bit numbers."""
    left, right = arguments.tensor(0), arguments.tensor(1)
    return _work(left, right, left.shape[:-1], right.shape[-1:], 2, _SCALED_OUTPUT_BYTES)


def matmul(arguments: Arguments) -> Work:
    """`matmul(a, b)` of tensors of any dimensions, broadcast."""
    left, right = arguments.tensor(0), arguments.tensor(1)
    if not left.shape or not right.shape:
        raise UnknownArgumentsError("a product of scalars")
    rows = left.shape[-2:-1]
    if len(right.shape) == 1:
        return _work(left, right, (*left.shape[:-1],), (), None, left.item_bytes)
    batch = broadcast([left.shape[:-2], right.shape[:-2]])
    return _work(left, right, (*batch, *rows), right.shape[-1:], None, left.item_bytes)


def linear(arguments: Arguments) -> Work:
    """`linear(x, weight, bias)`: the weight is (n, k)."""
    x, weight = arguments.tensor(0), arguments.tensor(1)
    if len(weight.shape) != 2:
        raise UnknownArgumentsError("the weight is not a matrix")
    turned = weight._replace(shape=weight.shape[::-1])
    work = _work(x, turned, x.shape[:-1], turned.shape[-1:], None, x.item_bytes)
    bias = arguments.optional(2)
    return work if bias is None else _with_bias(work, bias)


def grouped_mm(arguments: Arguments) -> Work:
    """`_grouped_mm(a, b, …)` where the rows of a (t, k) are divided among matrices b (e, k, n)."""
    left, right = arguments.tensor(0), arguments.tensor(1)
    if len(left.shape) != 2 or len(right.shape) != 3:
        raise UnknownArgumentsError("groups of other shapes")
    return _work(left, right, left.shape[:-1], right.shape[-1:], None, left.item_bytes)


def _work(left: Tensor, right: Tensor, rows: Shape, columns: Shape, rank: int | None, item_bytes: int) -> Work:
    inner = right.shape[-2] if len(right.shape) > 1 else right.shape[-1] if right.shape else None
    if not left.shape or left.shape[-1] != inner or (rank and {len(left.shape), len(right.shape)} != {rank}):
        raise UnknownArgumentsError("matrices do not fit each other")
    outputs = prod(rows) * prod(columns)
    return Work(2 * outputs * inner, left.bytes + right.bytes + outputs * item_bytes, left.dtype)


def _with_bias(work: Work, bias: Tensor) -> Work:
    return work._replace(bytes=work.bytes + bias.bytes)


# ---- fused attention -------------------------------------------------------------------------------------------------
#
# Two products of matrices forward, five backward (scores are computed again), as `torch.utils.flop_counter` counts:
# 2 b h s_q s_k (d_q + d_v) forward, without the softmax, and with the whole matrix of scores where a causal mask lets
# half of it be skipped.

_FLOAT = 4


def attention(arguments: Arguments, *, by_sequence: bool = False) -> Work:
    """`_scaled_dot_product_*_attention(query, key, value, …)`: batch, heads, sequence, head size.

    `by_sequence`: `_flash_attention_forward`, whose tensors are batch, sequence, heads, head size.
    """
    query, key, value = _heads_first(arguments, 3, by_sequence)
    scores, size, value_size = _sizes(query, key, value)
    rows = _rows(query)
    # Beside the output, the logarithm of the sum of each row, which backward needs.
    moved = query.bytes + key.bytes + value.bytes + rows * (value_size * query.item_bytes + _FLOAT)
    return Work(2 * scores * (size + value_size), moved, query.dtype)


def attention_backward(arguments: Arguments, *, by_sequence: bool = False) -> Work:
    """The same with the gradient before query, key and value."""
    gradient, query, key, value = _heads_first(arguments, 4, by_sequence)
    scores, size, value_size = _sizes(query, key, value)
    # Read: the gradient and the output, which have one shape, and the inputs; written: the gradients of the inputs.
    moved = 2 * gradient.bytes + 2 * (query.bytes + key.bytes + value.bytes) + _rows(query) * _FLOAT
    return Work(2 * scores * (3 * size + 2 * value_size), moved, query.dtype)


def _rows(query: Tensor) -> int:
    return query.elements // query.shape[-1] if query.shape[-1] else 0


def _heads_first(arguments: Arguments, count: int, by_sequence: bool) -> list[Tensor]:
    tensors = [arguments.tensor(place) for place in range(count)]
    if not by_sequence:
        return tensors
    if any(len(tensor.shape) != 4 for tensor in tensors):  # sequences of different lengths in one
        raise UnknownArgumentsError("the lengths of the sequences are not recorded")
    return [tensor._replace(shape=tuple(tensor.shape[place] for place in (0, 2, 1, 3))) for tensor in tensors]


def _sizes(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, int, int]:
    """Return the number of scores over batch and heads, and the sizes of a key's and a value's head."""
    if {len(query.shape), len(key.shape), len(value.shape)} != {4}:
        raise UnknownArgumentsError("not batch, heads, sequence and head size")
    batch, heads, queries, size = query.shape
    fits = (key.shape[0], key.shape[3]) == (batch, size) and value.shape[:3] == key.shape[:3]
    if not fits or not key.shape[1] or heads % key.shape[1]:
        raise UnknownArgumentsError("query, key and value do not fit each other")
    return batch * heads * queries * key.shape[2], size, value.shape[3]


# ---- convolutions ----------------------------------------------------------------------------------------------------
#
# 2 operations per output position and element of the weight, per sample, as `torch.utils.flop_counter` counts, without
# the bias; the gradients of input and weight cost as much as the forward pass each. (With groups, the flop counter
# takes the gradient of the weight for as many times as there are groups.)


def convolution(arguments: Arguments) -> Work:
    """`convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)`."""
    weight = arguments.tensor(1)
    x = _batched(arguments.tensor(0), weight)
    transposed, groups = _is_transposed(arguments, 6), _groups(arguments, 8)
    out = _output(x, weight, arguments, transposed=transposed, groups=groups)
    bias = arguments.optional(2)
    moved = x.bytes + weight.bytes + out.bytes + (bias.bytes if bias else 0)
    return Work(_operations(x, weight, out, transposed=transposed), moved, x.dtype)


def convolution_backward(arguments: Arguments) -> Work:
    """`convolution_backward(gradient, x, weight, …, transposed, output_padding, groups, output_mask)`."""
    weight = arguments.tensor(2)
    gradient, x = (_batched(arguments.tensor(place), weight) for place in range(2))
    mask = arguments.value(10)
    if not isinstance(mask, tuple) or len(mask) != 3 or not all(type(one) is bool for one in mask):
        raise UnknownArgumentsError("which gradients are wanted is not recorded")
    once = _operations(x, weight, gradient, transposed=_is_transposed(arguments, 7))
    moved = gradient.bytes + (x.bytes + weight.bytes) * (mask[0] + mask[1])
    return Work(once * (mask[0] + mask[1]), moved, x.dtype)


def _batched(x: Tensor, weight: Tensor) -> Tensor:
    """Return a tensor with its dimension of samples, which a single sample may lack."""
    if len(x.shape) == len(weight.shape) - 1:
        return x._replace(shape=(1, *x.shape))
    if len(x.shape) != len(weight.shape) or len(x.shape) < 3:
        raise UnknownArgumentsError("input and weight do not fit each other")
    return x


def _is_transposed(arguments: Arguments, place: int) -> bool:
    value = arguments.value(place)
    if type(value) is not bool:
        raise UnknownArgumentsError("whether the convolution is transposed is not recorded")
    return value


def _groups(arguments: Arguments, place: int) -> int:
    value = arguments.value(place)
    if type(value) is not int or value < 1:
        raise UnknownArgumentsError("the number of groups is not recorded")
    return value


def _output(x: Tensor, weight: Tensor, arguments: Arguments, *, transposed: bool, groups: int) -> Tensor:
    sizes = x.shape[2:]
    stride, padding, dilation = (arguments.integers(place, len(sizes)) for place in (3, 4, 5))
    if min(*stride, *dilation) < 1 or min(padding) < 0:
        raise UnknownArgumentsError("stride, padding or dilation is impossible")
    reach = [step * (kernel - 1) for step, kernel in zip(dilation, weight.shape[2:], strict=True)]
    out: Shape
    if transposed:
        more = arguments.integers(7, len(sizes))
        out = tuple(
            (size - 1) * step - 2 * pad + far + extra + 1
            for size, step, pad, far, extra in zip(sizes, stride, padding, reach, more, strict=True)
        )
    else:
        out = tuple(
            (size + 2 * pad - far - 1) // step + 1
            for size, step, pad, far in zip(sizes, stride, padding, reach, strict=True)
        )
    if min(out) < 0:
        raise UnknownArgumentsError("the output has no size")
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    return x._replace(shape=(x.shape[0], channels, *out))


def _operations(x: Tensor, weight: Tensor, out: Tensor, *, transposed: bool) -> int:
    positions = prod((x if transposed else out).shape[2:])
    return 2 * x.shape[0] * positions * weight.elements
