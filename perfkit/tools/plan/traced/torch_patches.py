"""Changes to torch that tracing with fake tensors needs.

torch's `fully_shard` divides each parameter into as many tensors as there are ranks, and keeps one or two of them. On
1,024 ranks that is most of the time of a plan. Here it makes only the part that it asks for. The parts are the same;
where another version of torch divides otherwise, it takes the longer way. And fake tensors lack the values that decide
where tokens go: the same number of them is routed to each expert.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp._fully_shard import _fsdp_param

from perfkit_workloads.gpt_experts import Exchanged, MixtureOfExperts

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


@contextmanager
def even_experts() -> Iterator[None]:
    """Let every mixture of experts divide its tokens evenly."""
    even = {"count_tokens": _count_tokens, "arrange": _arrange}
    own = {name: getattr(MixtureOfExperts, name) for name in even}
    for name, method in even.items():
        setattr(MixtureOfExperts, name, method)
    try:
        yield
    finally:
        for name, method in own.items():
            setattr(MixtureOfExperts, name, method)


def _count_tokens(mixture: MixtureOfExperts, chosen: Tensor) -> Tensor:
    return _even(chosen.numel(), mixture.count)


def _arrange(mixture: MixtureOfExperts, counts: Tensor, group: dist.ProcessGroup) -> Exchanged:
    """Return what is exchanged if every other rank sends as this one does."""
    ranks = dist.get_world_size(group)
    each = counts.tolist()
    own = len(each) // ranks
    sent = [sum(each[rank * own : (rank + 1) * own]) for rank in range(ranks)]
    received = [sent[dist.get_rank(group)]] * ranks
    order = torch.arange(sum(received))
    return Exchanged(sent, received, order, _even(len(order), mixture.count // ranks))


def _even(total: int, parts: int) -> Tensor:
    """Return `total` in parts that differ by one at most, as a tensor with values."""
    with torch._C._DisableTorchDispatch():
        return torch.tensor([total // parts + (part < total % parts) for part in range(parts)])
