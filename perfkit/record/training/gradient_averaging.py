"""Averages gradients after backward, in buckets like DDP's, so that none of it overlaps: `--no-overlap`."""

from collections.abc import Iterable, Iterator
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

_MIB: Final = 1 << 20
_DEFAULT_MIB: Final = (1.0, 25.0)
"""DDP's defaults: the first bucket, all others."""


def average_gradients(
    parameters: Iterable[nn.Parameter], bucket_cap_mb: float | None, group: dist.ProcessGroup | None = None
) -> None:
    """Average the gradients over the ranks of a group, one bucket after the other.

    Args:
        parameters: In the order of the model; the same ones must have gradients on every rank.
        bucket_cap_mb: Size of a bucket; None is DDP's default.
    """
    ranks = dist.get_world_size(group)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    for bucket in buckets(gradients, bucket_cap_mb):
        flat = torch.cat([gradient.flatten() for gradient in bucket]).div_(ranks)
        dist.all_reduce(flat, group=group)
        parts = torch.split(flat, [gradient.numel() for gradient in bucket])
        for gradient, part in zip(bucket, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def buckets(gradients: list[Tensor], bucket_cap_mb: float | None) -> Iterator[list[Tensor]]:
    """Yield the gradients in buckets, in the order in which backward computes them.

    As in DDP a bucket is closed by the gradient that fills it, and contains a single data type.
    """
    first, others = _DEFAULT_MIB if bucket_cap_mb is None else (bucket_cap_mb, bucket_cap_mb)
    cap_bytes, bucket, bucket_bytes = first * _MIB, list[Tensor](), 0
    for gradient in reversed(gradients):
        if bucket and bucket[0].dtype != gradient.dtype:
            yield bucket
            cap_bytes, bucket, bucket_bytes = others * _MIB, [], 0
        bucket.append(gradient)
        bucket_bytes += gradient.nbytes
        if bucket_bytes >= cap_bytes:
            yield bucket
            cap_bytes, bucket, bucket_bytes = others * _MIB, [], 0
    if bucket:
        yield bucket
