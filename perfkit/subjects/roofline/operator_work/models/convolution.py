"""Convolutions: 2 operations per output position and element of the weight, per sample.

As `torch.utils.flop_counter` counts, without the bias; the gradients of input and weight cost as much as the forward
pass each. (With groups, the flop counter takes the gradient of the weight for as many times as there are groups.)
"""

from math import prod

from perfkit.subjects.roofline.operator_work.arguments import Arguments, Shape, Tensor, UnknownArgumentsError
from perfkit.subjects.roofline.operator_work.models import Work


def forward(arguments: Arguments) -> Work:
    """`convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding, groups)`."""
    weight = arguments.tensor(1)
    x = _batched(arguments.tensor(0), weight)
    transposed, groups = _is_transposed(arguments, 6), _groups(arguments, 8)
    out = _output(x, weight, arguments, transposed=transposed, groups=groups)
    bias = arguments.optional(2)
    moved = x.bytes + weight.bytes + out.bytes + (bias.bytes if bias else 0)
    return Work(_operations(x, weight, out, transposed=transposed), moved, x.dtype)


def backward(arguments: Arguments) -> Work:
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
