"""Operators that pass over tensors once: element-wise ones, reductions, norms, softmax, embeddings.

Their bytes are those of their inputs and outputs. Their operations are counted per element by the textbook formula; a
function such as `exp` is one.
"""

from math import prod

from perfkit.subjects.roofline.operator_work.arguments import Arguments, Tensor, broadcast
from perfkit.subjects.roofline.operator_work.models import Work

_FLOAT = 4
_LAYER_NORM = (7, 14)
"""Mean, variance (2), difference, product, scale and shift; backward twice as many."""
_RMS_NORM = (4, 8)
"""Square, sum, product and scale."""
_SOFTMAX = (5, 4)
"""Maximum, difference, exp, sum and quotient; backward product, sum, difference and product."""


def elementwise(arguments: Arguments) -> Work:
    """Read all tensors, and write one of the shape that they have in common, and of the widest of their types."""
    return _elementwise(arguments, 1)


def inplace(arguments: Arguments) -> Work:
    """Read all tensors, and write the first."""
    first = arguments.tensor(0)
    return Work(first.elements, sum(one.bytes for one in arguments.present()) + first.bytes, first.dtype)


def comparison(arguments: Arguments) -> Work:
    """Read all tensors, and write truth values."""
    present = [arguments.tensor(0), *arguments.present()[1:]]
    elements = prod(broadcast([one.shape for one in present]))
    return Work(elements, sum(one.bytes for one in present) + elements, present[0].dtype)


def select(arguments: Arguments) -> Work:
    """`where(condition, a, b)`, `masked_fill(x, mask, value)`: like element-wise ones, without arithmetic."""
    return _elementwise(arguments, 0)


def dropout(arguments: Arguments) -> Work:
    """`native_dropout(x, …)`: read, write, and write a mask of one byte per element."""
    x = arguments.tensor(0)
    return Work(2 * x.elements, 2 * x.bytes + x.elements, x.dtype)


def fill(arguments: Arguments) -> Work:
    """`fill_`, `zero_`, `normal_` …: write the first tensor."""
    first = arguments.tensor(0)
    return Work(0, first.bytes, first.dtype)


def copy(arguments: Arguments) -> Work:
    """`copy_(target, source)`: the source may be smaller, and be repeated."""
    target, source = arguments.tensor(0), arguments.tensor(1)
    return Work(0, target.bytes + source.bytes, target.dtype)


def clone(arguments: Arguments) -> Work:
    """`clone(x)`."""
    x = arguments.tensor(0)
    return Work(0, 2 * x.bytes, x.dtype)


def reduction(arguments: Arguments) -> Work:
    """Read a tensor, and write what is left of it.

    What is written counts only if the dimensions were recorded; it is small against what is read.
    """
    x = arguments.tensor(0)
    dimensions = arguments.value(1)
    left = 0
    if isinstance(dimensions, tuple) and all(type(one) is int and abs(one) <= len(x.shape) for one in dimensions):
        reduced = {one % len(x.shape) for one in dimensions} if x.shape else set()
        left = prod(size for place, size in enumerate(x.shape) if place not in reduced) if reduced else 1
    return Work(x.elements, x.bytes + left * x.item_bytes, x.dtype)


def scan(arguments: Arguments) -> Work:
    """`cumsum(x, dim)`: read and write."""
    x = arguments.tensor(0)
    return Work(x.elements, 2 * x.bytes, x.dtype)


def layer_norm(arguments: Arguments) -> Work:
    """`native_layer_norm(x, …)`, group and batch norm: read the input and the parameters, write the output."""
    return _norm(arguments, 0, _LAYER_NORM[0])


def layer_norm_backward(arguments: Arguments) -> Work:
    """`native_layer_norm_backward(gradient, x, …)`, group and batch norm."""
    return _norm(arguments, 1, _LAYER_NORM[1])


def rms_norm(arguments: Arguments) -> Work:
    """`_fused_rms_norm(x, …)`."""
    return _norm(arguments, 0, _RMS_NORM[0])


def rms_norm_backward(arguments: Arguments) -> Work:
    """`_fused_rms_norm_backward(gradient, x, …)`."""
    return _norm(arguments, 1, _RMS_NORM[1])


def softmax(arguments: Arguments) -> Work:
    """`_softmax(x, dim, half_to_float)`."""
    x = arguments.tensor(0)
    item_bytes = _FLOAT if arguments.value(2) is True else x.item_bytes
    return Work(_SOFTMAX[0] * x.elements, x.bytes + x.elements * item_bytes, x.dtype)


def softmax_backward(arguments: Arguments) -> Work:
    """`_softmax_backward_data(gradient, output, dim, dtype)`: writes a gradient like the output."""
    gradient, output = arguments.tensor(0), arguments.tensor(1)
    return Work(_SOFTMAX[1] * output.elements, gradient.bytes + 2 * output.bytes, output.dtype)


def embedding(arguments: Arguments) -> Work:
    """`embedding(weight, indices)`: read the rows that are looked up, and write them."""
    weight, indices = arguments.tensor(0), arguments.tensor(1)
    row = weight.shape[-1] * weight.item_bytes if weight.shape else 0
    return Work(0, indices.bytes + 2 * indices.elements * row, weight.dtype)


def embedding_backward(arguments: Arguments) -> Work:
    """`embedding_dense_backward(gradient, indices, rows, …)`: read the gradient, and write the whole table's."""
    gradient, indices = arguments.tensor(0), arguments.tensor(1)
    rows = arguments.value(2)
    table = rows * gradient.shape[-1] * gradient.item_bytes if type(rows) is int and gradient.shape else 0
    return Work(gradient.elements, gradient.bytes + indices.bytes + max(table, 0), gradient.dtype)


def gather(arguments: Arguments) -> Work:
    """`gather(x, dim, indices)`: read as many elements as there are indices, and write them."""
    x, indices = arguments.tensor(0), arguments.tensor(2)
    return Work(0, indices.bytes + 2 * indices.elements * x.item_bytes, x.dtype)


def _elementwise(arguments: Arguments, flops: int) -> Work:
    present = arguments.present() if arguments.optional(0) else [arguments.tensor(0)]
    elements = prod(broadcast([one.shape for one in present]))
    # A tensor without dimensions takes part with its value, not with its type.
    typed = [one for one in present if one.shape] or present
    widest: Tensor = max(typed, key=lambda one: (_is_float(one.dtype), one.item_bytes))
    moved = sum(one.bytes for one in present) + elements * widest.item_bytes
    return Work(flops * elements, moved, widest.dtype)


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def _norm(arguments: Arguments, place: int, flops: int) -> Work:
    """Return the work of a norm of the tensor at `place`, whose output has the same shape."""
    x = arguments.tensor(place)
    return Work(flops * x.elements, sum(one.bytes for one in arguments.present()) + x.bytes, x.dtype)
