"""Matrix products: 2 m k n operations, as `torch.utils.flop_counter` counts; adding a bias is not counted."""

from math import prod

from perfkit.subjects.roofline.operator_work.arguments import Arguments, Shape, Tensor, UnknownArgumentsError, broadcast
from perfkit.subjects.roofline.operator_work.models import Work

_SCALED_OUTPUT_BYTES = 2
"""The output of a product in 8 bits is usually bfloat16."""


def mm(arguments: Arguments) -> Work:
    """`mm(a, b)`."""
    return _product(arguments.tensor(0), arguments.tensor(1), 2)


def addmm(arguments: Arguments) -> Work:
    """`addmm(bias, a, b)`."""
    return _with_bias(_product(arguments.tensor(1), arguments.tensor(2), 2), arguments.tensor(0))


def bmm(arguments: Arguments) -> Work:
    """`bmm(a, b)`."""
    return _product(arguments.tensor(0), arguments.tensor(1), 3)


def baddbmm(arguments: Arguments) -> Work:
    """`baddbmm(bias, a, b)`."""
    return _with_bias(_product(arguments.tensor(1), arguments.tensor(2), 3), arguments.tensor(0))


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


def _product(left: Tensor, right: Tensor, rank: int) -> Work:
    if left.shape[:-2] != right.shape[:-2]:
        raise UnknownArgumentsError("batches do not fit each other")
    return _work(left, right, left.shape[:-1], right.shape[-1:], rank, left.item_bytes)


def _work(left: Tensor, right: Tensor, rows: Shape, columns: Shape, rank: int | None, item_bytes: int) -> Work:
    inner = right.shape[-2] if len(right.shape) > 1 else right.shape[-1] if right.shape else None
    if not left.shape or left.shape[-1] != inner or (rank and {len(left.shape), len(right.shape)} != {rank}):
        raise UnknownArgumentsError("matrices do not fit each other")
    outputs = prod(rows) * prod(columns)
    return Work(2 * outputs * inner, left.bytes + right.bytes + outputs * item_bytes, left.dtype)


def _with_bias(work: Work, bias: Tensor) -> Work:
    return work._replace(bytes=work.bytes + bias.bytes)
