"""Updates of whole lists of tensors: optimizers' `_foreach_*` and `_fused_*` operators, by their bytes.

The profiler records no types of lists: float32 is assumed, in which optimizers keep parameters and states unless the
whole model is in another type. Their arithmetic, a few operations per element, is not counted.
"""

from collections.abc import Sequence
from math import prod

from perfkit.subjects.roofline.operator_work.arguments import Arguments, Shape
from perfkit.subjects.roofline.operator_work.models import Work

_ITEM_BYTES = 4


def foreach(arguments: Arguments) -> Work:
    """`_foreach_add_(tensors, …)`, `_foreach_sqrt(tensors)`: read all lists, and write the first or one like it."""
    return _moved(_read(arguments) + _elements(arguments.shapes(0)))


def foreach_write(arguments: Arguments) -> Work:
    """`_foreach_zero_(tensors)`."""
    return _moved(_elements(arguments.shapes(0)))


def foreach_copy(arguments: Arguments) -> Work:
    """`_foreach_copy_(targets, sources)`."""
    return _moved(_elements(arguments.shapes(0)) + _elements(arguments.shapes(1)))


def foreach_norm(arguments: Arguments) -> Work:
    """`_foreach_norm(tensors)`: read one list."""
    return _moved(_elements(arguments.shapes(0)))


def fused_adam(arguments: Arguments) -> Work:
    """`_fused_adam_(parameters, gradients, averages, squares, largest, steps, …)`: all but gradients are written."""
    lists = [_elements(arguments.shapes(place)) for place in range(4)]
    largest = arguments.lists[4] if len(arguments.lists) > 4 else None
    return _moved(2 * (sum(lists) + _elements(largest or ())) - lists[1])


def fused_sgd(arguments: Arguments) -> Work:
    """`_fused_sgd_(parameters, gradients, momenta, …)`: all but gradients are written."""
    lists = [_elements(arguments.shapes(place)) for place in range(2)]
    momenta = arguments.lists[2] if len(arguments.lists) > 2 else None
    return _moved(2 * (sum(lists) + _elements(momenta or ())) - lists[1])


def _read(arguments: Arguments) -> int:
    return sum(_elements(shapes) for shapes in arguments.lists if shapes)


def _elements(shapes: Sequence[Shape]) -> int:
    return sum(prod(shape) for shape in shapes)


def _moved(elements: int) -> Work:
    return Work(0, elements * _ITEM_BYTES, None)
