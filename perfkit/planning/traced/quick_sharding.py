"""Lets torch's `fully_shard` make only the part of a parameter that it asks for, instead of one for every rank.

torch divides each parameter into as many tensors as there are ranks, and keeps one or two of them. With fake tensors on
1,024 ranks that is most of the time of a plan. The parts are the same; where another version of torch divides
otherwise, it takes the longer way.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from torch import Tensor
from torch.distributed.fsdp._fully_shard import _fsdp_param

_DIVIDES: Final = "_chunk_with_empty"


class Parts:
    """The parts of a tensor along a dimension, as `torch.chunk` divides it; made when asked for.

    Args:
        tensor: what is divided.
        count: number of parts; the last ones may be empty.
        dim: the dimension.
    """

    def __init__(self, tensor: Tensor, count: int, dim: int) -> None:
        self._tensor, self._count, self._dim = tensor, count, dim

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, place: int) -> Tensor:
        if not 0 <= place < self._count:
            raise IndexError(place)
        whole = self._tensor.size(self._dim)
        size = -(-whole // self._count)
        start = place * size
        if start >= whole:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, min(size, whole - start))


@contextmanager
def quick_sharding() -> Iterator[None]:
    """Divide parameters so while modules are sharded."""
    divide = getattr(_fsdp_param, _DIVIDES, None)
    if divide is None:
        yield
        return
    setattr(_fsdp_param, _DIVIDES, Parts)
    try:
        yield
    finally:
        setattr(_fsdp_param, _DIVIDES, divide)
