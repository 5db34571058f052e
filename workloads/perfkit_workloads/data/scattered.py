"""Batches that one rank reads for several and sends them."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from perfkit_workloads.base import DataSpec

Batch = dict[str, Tensor]


class Served(NamedTuple):
    """Ranks that get their batches from the first of them."""

    ranks: Sequence[int]
    rank: int
    group: Any

    @property
    def reads(self) -> bool:
        return self.rank == self.ranks[0]


def join_readers(readers: int, timeout: timedelta | None) -> Served:
    """Divide all ranks evenly among `readers`; called by every rank.

    The group is one of gloo, whatever the ranks compute on: batches are in host memory.
    """
    rank, each = dist.get_rank(), dist.get_world_size() // readers
    everyone = [list(range(first, first + each)) for first in range(0, readers * each, each)]
    groups = [dist.new_group(ranks, timeout=timeout, backend="gloo", group_desc="readers") for ranks in everyone]
    return Served(everyone[rank // each], rank, groups[rank // each])


class ScatteredLoader:
    """Loads batches on the first of some ranks, and gives each rank its own.

    Args:
        loader: On the rank that reads: batches of the first rank, the second, and so on in turns. None on the others.
        batches: Batches per rank and epoch.
    """

    def __init__(
        self, loader: Iterable[Batch] | None, served: Served, spec: DataSpec, batch_size: int, batches: int
    ) -> None:
        self._loader, self._served, self._spec = loader, served, spec
        self._batch_size, self._batches = batch_size, batches

    def __len__(self) -> int:
        return self._batches

    def __iter__(self) -> Iterator[Batch]:
        # At once, not with the first batch: the workers start here.
        return self._batches_of(None if self._loader is None else iter(self._loader))

    def _batches_of(self, read: Iterator[Batch] | None) -> Iterator[Batch]:
        for _ in range(self._batches):
            together = None if read is None else [next(read) for _ in self._served.ranks]
            yield self._scatter(together)

    def _scatter(self, together: list[Batch] | None) -> Batch:
        own = {}
        for field in self._spec.fields:
            tensor = torch.empty((self._batch_size, *field.shape), dtype=getattr(torch, field.dtype))
            # A batch of one sample may be a view of a mapped file.
            parts = None if together is None else [batch[field.name].contiguous() for batch in together]
            dist.scatter(tensor, parts, src=self._served.ranks[0], group=self._served.group)
            own[field.name] = tensor
        return own
