"""Arguments of an operator as the profiler records them (`record_shapes`): shapes, types and some values."""

from collections.abc import Sequence
from math import prod
from typing import Any, Final, NamedTuple

from perfkit.base.dtypes import DTYPES
from perfkit.errors import PerfkitError

LARGEST: Final = 2**62
"""More elements, bytes or operations than this in one call are damage."""
_MOST_ARGUMENTS: Final = 64
_MOST_DIMENSIONS: Final = 16
_MOST_TENSORS: Final = 1 << 16
"""In a list of tensors."""

Shape = tuple[int, ...]


class UnknownArgumentsError(PerfkitError):
    """An operator's work cannot be derived from what was recorded of its arguments."""


class Tensor(NamedTuple):
    """A tensor argument."""

    shape: Shape
    dtype: str
    """By torch's name, such as `bfloat16`."""
    item_bytes: int

    @property
    def elements(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Size, as if no dimension were expanded."""
        return self.elements * self.item_bytes


class Arguments(NamedTuple):
    """The arguments of one call, by position; None where one is not of that kind."""

    tensors: tuple[Tensor | None, ...]
    lists: tuple[tuple[Shape, ...] | None, ...]
    """Shapes of lists of tensors, which are recorded without types."""
    values: tuple[Any, ...]
    """Numbers, truth values and lists of them; empty if values were not recorded."""

    def tensor(self, place: int) -> Tensor:
        """Return the tensor at a position.

        Raises:
            UnknownArgumentsError: There is none, or its shape or type is not known.
        """
        found = self.optional(place)
        if found is None:
            raise UnknownArgumentsError(f"argument {place} is not a known tensor")
        return found

    def optional(self, place: int) -> Tensor | None:
        """Return the tensor at a position; None if there is none."""
        return self.tensors[place] if place < len(self.tensors) else None

    def shapes(self, place: int) -> tuple[Shape, ...]:
        """Return the shapes of the list of tensors at a position.

        Raises:
            UnknownArgumentsError: There is none, or its shapes were not recorded.
        """
        found = self.lists[place] if place < len(self.lists) else None
        if found is None:
            raise UnknownArgumentsError(f"argument {place} is not a known list of tensors")
        return found

    def value(self, place: int) -> Any:
        """Return the value at a position; None if it was not recorded."""
        return self.values[place] if place < len(self.values) else None

    def integers(self, place: int, length: int) -> Shape:
        """Return a list of whole numbers; one of a single number is repeated.

        Raises:
            UnknownArgumentsError: It was not recorded, or has another length.
        """
        value = self.value(place)
        is_list = isinstance(value, tuple) and all(type(one) is int for one in value)
        if not is_list or len(value) not in (1, length):
            raise UnknownArgumentsError(f"argument {place} is not a known list of {length} numbers")
        return tuple(value) if len(value) == length else tuple(value) * length

    def present(self) -> list[Tensor]:
        """Return all tensor arguments."""
        return [tensor for tensor in self.tensors if tensor is not None]


class Work(NamedTuple):
    """What one call of an operator needs at least."""

    flops: int
    """Arithmetic operations; a multiplication and an addition are two."""
    bytes: int
    """Memory traffic if every input is read once and every output written once."""
    dtype: str | None
    """Type of the elements; of a matrix product that of its factors. None if it was not recorded."""


def decode_arguments(dims: Any, types: Any, concrete: Any) -> Arguments:
    """Return the arguments from `Input Dims`, `Input type` and `Concrete Inputs`, decoded from JSON.

    Raises:
        UnknownArgumentsError: They are missing or damaged.
    """
    if not isinstance(dims, list) or not isinstance(types, list) or len(dims) != len(types):
        raise UnknownArgumentsError("no shapes and types")
    if len(dims) > _MOST_ARGUMENTS:
        raise UnknownArgumentsError("too many arguments")
    pairs = list(zip(dims, types, strict=True))
    listed = concrete if isinstance(concrete, list) and len(concrete) == len(dims) else []
    return Arguments(
        tuple(_tensor(shape, kind) for shape, kind in pairs),
        tuple(_shapes(shape) if kind == "TensorList" else None for shape, kind in pairs),
        tuple(_value(text) for text in listed),
    )


def _tensor(dims: Any, kind: Any) -> Tensor | None:
    dtype = DTYPES.get(_plain(kind)) if isinstance(kind, str) else None
    shape = _shape(dims)
    return None if dtype is None or shape is None else Tensor(shape, *dtype)


def _plain(kind: str) -> str:
    """Return a type in lower case, without the name space of types that have no other spelling."""
    name = kind.lower()
    return name if name in DTYPES else name.removeprefix("c10::")


def _shape(dims: Any) -> Shape | None:
    if not isinstance(dims, list) or len(dims) > _MOST_DIMENSIONS:
        return None
    if not all(type(size) is int and size >= 0 for size in dims) or prod(dims) > LARGEST:
        return None
    return tuple(dims)


def _shapes(dims: Any) -> tuple[Shape, ...] | None:
    """Return the shapes of a list; an empty one means that they were not recorded (before PyTorch 2.3)."""
    if not isinstance(dims, list) or not dims or len(dims) > _MOST_TENSORS:
        return None
    shapes = [_shape(one) for one in dims]
    return None if None in shapes else tuple(shape for shape in shapes if shape is not None)


def _value(text: Any) -> Any:
    if not isinstance(text, str):
        return None
    if text.startswith("[") and text.endswith("]"):
        return tuple(_number(part.strip()) for part in text[1:-1].split(",")) if len(text) > 2 else ()
    return _number(text)


def _number(text: str) -> float | int | bool | None:
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the shape that shapes have in common by broadcasting.

    Raises:
        UnknownArgumentsError: They do not fit each other.
    """
    rank = max((len(shape) for shape in shapes), default=0)
    result = []
    for sizes in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        distinct = {size for size in sizes if size != 1}
        if len(distinct) > 1:
            raise UnknownArgumentsError("shapes do not fit each other")
        result.append(distinct.pop() if distinct else 1)
    return tuple(result)
