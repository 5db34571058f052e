"""Routes the same number of tokens to each expert: fake tensors lack the values that decide where tokens go."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from workloads.gpt_experts import Exchanged, MixtureOfExperts


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
