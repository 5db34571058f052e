"""Values of messages, and what collectives must make of them, exactly in every type of elements.

The value of an element depends on its position and its rank, so that a part in the wrong place, from the wrong rank, or
missing in a sum shows. Sums stay within the integers that a type represents exactly.
"""

from typing import Final

import torch
from torch import Tensor

_PERIOD: Final = 127
"""Positions after which values repeat: a prime, so that parts of equal size begin at different ones."""
_VALUES: Final = 101
_RANK_STEP: Final = 31
_EXACT: Final = {
    torch.float64: 1 << 53,
    torch.float32: 1 << 24,
    torch.float16: 1 << 11,
    torch.bfloat16: 1 << 8,
    torch.int64: 1 << 62,
    torch.int32: 1 << 30,
    torch.int8: 127,
    torch.uint8: 255,
}
"""Largest integer up to which a type represents all."""


def values_of_ranks(ranks: int, dtype: torch.dtype, *, summed: bool) -> Tensor:
    """Return one period of every rank's values, shape (ranks, period), int64.

    Args:
        ranks: Number of ranks.
        dtype: Type of the message.
        summed: Whether the operator adds up the ranks' values.
    """
    position, rank = torch.arange(_PERIOD)[None], torch.arange(ranks)[:, None]
    most = _EXACT[dtype] // ranks if summed else _VALUES
    if most >= 1:
        return (position + _RANK_STEP * rank) % min(_VALUES, most + 1)
    # More ranks than the largest exact integer: at each position only so many of them have a one.
    every = -(-ranks // _EXACT[dtype])
    return ((position + rank) % every == 0).long()


def message(period: Tensor, elements: int, dtype: torch.dtype, device: torch.device, first: int = 0) -> Tensor:
    """Return a message that repeats `period`, beginning with the element `first`."""
    begin = period.roll(-(first % _PERIOD)).to(dtype)
    return begin.repeat(-(-elements // _PERIOD))[:elements].to(device)


def count_wrong(result: Tensor, expected: Tensor) -> int:
    """Return the number of elements that differ; NaN differs from everything."""
    return int((result != expected).sum().item())
