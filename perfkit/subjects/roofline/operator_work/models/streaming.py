"""Operators that pass over tensors once: element-wise ones, reductions, norms, softmax, embeddings.

Their bytes are those of their inputs and outputs. Their operations are counted per element by the textbook formula; a
function such as `exp` is one.
"""

from collections.abc import Sequence
from math import prod

from perfkit.subjects.roofline.operator_work.arguments import Arguments, Shape, Tensor, Work, broadcast

_FLOAT = 4
"""Bytes of a number."""
_SOFTMAX = (5, 4)
"""Maximum, difference, exp, sum and quotient; backward product, sum, difference and product."""


def elementwise(arguments: Arguments, *, flops: int = 1) -> Work:
    """Read all tensors, and write one of the shape that they have in common, and of the widest of their types.

    `where(condition, a, b)`, `masked_fill(x, mask, value)` have no arithmetic.
    """
    present = arguments.present() if arguments.optional(0) else [arguments.tensor(0)]
    elements = prod(broadcast([one.shape for one in present]))
    # A tensor without dimensions takes part with its value, not with its type.
    typed = [one for one in present if one.shape] or present
    widest: Tensor = max(typed, key=lambda one: (one.dtype.startswith(("float", "bfloat", "complex")), one.item_bytes))
    moved = sum(one.bytes for one in present) + elements * widest.item_bytes
    return Work(flops * elements, moved, widest.dtype)


def inplace(arguments: Arguments) -> Work:
    """Read all tensors, and write the first."""
    first = arguments.tensor(0)
    return Work(first.elements, sum(one.bytes for one in arguments.present()) + first.bytes, first.dtype)


def comparison(arguments: Arguments) -> Work:
    """Read all tensors, and write truth values."""
    present = [arguments.tensor(0), *arguments.present()[1:]]
    elements = prod(broadcast([one.shape for one in present]))
    return Work(elements, sum(one.bytes for one in present) + elements, present[0].dtype)


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


def through(arguments: Arguments, *, flops: int = 0) -> Work:
    """`clone(x)`, `cumsum(x, dim)`: read and write."""
    x = arguments.tensor(0)
    return Work(flops * x.elements, 2 * x.bytes, x.dtype)


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


def norm(arguments: Arguments, *, flops: int, place: int = 0) -> Work:
    """Read the input at `place` and the parameters, and write an output of the input's shape.

    A layer, group or batch norm has 7 operations per element (mean, variance (2), difference, product, scale and
    shift), an RMS norm 4 (square, sum, product and scale); backward twice as many.
    """
    x = arguments.tensor(place)
    return Work(flops * x.elements, sum(one.bytes for one in arguments.present()) + x.bytes, x.dtype)


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


# ---- updates of whole lists of tensors: optimizers' `_foreach_*` and `_fused_*` operators ----------------------------
#
# The profiler records no types of lists: float32 is assumed, in which optimizers keep parameters and states unless the
# whole model is in another type. Their arithmetic, a few operations per element, is not counted.


def foreach(arguments: Arguments) -> Work:
    """`_foreach_add_(tensors, …)`, `_foreach_sqrt(tensors)`: read all lists, and write the first or one like it."""
    return _moved(sum(map(_elements, arguments.lists)) + _elements(arguments.shapes(0)))


def foreach_move(arguments: Arguments, *, lists: int = 1) -> Work:
    """`_foreach_zero_(tensors)`, `_foreach_norm(tensors)`, `_foreach_copy_(targets, sources)`: each list once."""
    return _moved(sum(_elements(arguments.shapes(place)) for place in range(lists)))


def fused(arguments: Arguments, *, lists: int) -> Work:
    """`_fused_adam_(parameters, gradients, averages, squares, largest, …)`, `_fused_sgd_(…, momenta, …)`.

    The list after the first `lists` may be absent; all but gradients are written.
    """
    read = [_elements(arguments.shapes(place)) for place in range(lists)]
    further = arguments.lists[lists] if len(arguments.lists) > lists else None
    return _moved(2 * (sum(read) + _elements(further)) - read[1])


def _elements(shapes: Sequence[Shape] | None) -> int:
    return sum(prod(shape) for shape in shapes or ())


def _moved(elements: int) -> Work:
    return Work(0, elements * _FLOAT, None)
