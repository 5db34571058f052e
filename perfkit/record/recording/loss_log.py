"""The loss of each step, kept without keeping a tensor.

A tensor that lives until the end of the run pins the memory around it: glibc cannot give a heap back, nor reuse the gap
below a small block that stays, so a run on a CPU would grow by megabytes per step. On a device, reading a loss would
make the host wait for the step: it is copied into a buffer there, and read when the device is waited for anyway.
"""

import math
from typing import Final

import torch
from torch import Tensor

from perfkit.errors import UsageError

_CAPACITY: Final = 1024
"""Losses in one buffer on a device. A full one is kept and another added, since reading it would wait."""


class LossBuffer:
    """Losses on the device where they are computed, in few tensors however many they are."""

    def __init__(self) -> None:
        self._chunks: list[Tensor] = []
        self._count = 0

    def append(self, loss: Tensor) -> None:
        chunk, place = divmod(self._count, _CAPACITY)
        if chunk == len(self._chunks):
            dtype = torch.promote_types(loss.dtype, torch.float32)
            self._chunks.append(torch.empty(_CAPACITY, dtype=dtype, device=loss.device))
        self._chunks[chunk][place].copy_(loss.detach().reshape(()))
        self._count += 1

    def take(self) -> list[float]:
        """Return all losses in order, and forget them; waits for the device."""
        losses = [loss for chunk in self._chunks for loss in chunk.tolist()][: self._count]
        del self._chunks[1:]
        self._count = 0
        return losses


class LossLog:
    """Collects the losses of the steps of one rank."""

    def __init__(self) -> None:
        self._values: list[float | None] = []
        self._buffer = LossBuffer()
        self._unread: list[int] = []
        """Steps whose losses are in the buffer, in order."""
        self._passed: list[float | None] = []
        """The loss of the last step, if that is not kept."""

    def add(self, loss: Tensor | float | None, *, kept: bool = True) -> None:
        """Append the loss of the next step; never waits for a device.

        Args:
            loss: The loss; None if there is none.
            kept: Whether it is kept, and not only until the next step. None is after one that is not.

        Raises:
            UsageError: It is a tensor of several elements, or of none.
        """
        values = self._values if kept else self._passed
        if not kept:
            values.clear()
        if not isinstance(loss, Tensor):
            values.append(_finite(loss))
            return
        if loss.numel() != 1:
            shape = ", ".join(map(str, loss.shape))
            raise UsageError(f"step(loss): a tensor of shape ({shape}) is not one loss: pass its mean, or nothing")
        if loss.device.type == "cpu":
            values.append(_finite(float(loss.detach())))
            return
        if kept:
            self._buffer.append(loss)
            self._unread.append(len(values))
        values.append(None)

    def read(self) -> None:
        """Read the losses that are on a device, which waits for it."""
        for step, loss in zip(self._unread, self._buffer.take(), strict=True):
            self._values[step] = _finite(loss)
        self._unread.clear()

    def last(self) -> float | None:
        """Return the loss of the last step; None if there is none, it is not finite, or it is unread."""
        values = self._passed or self._values
        return values[-1] if values else None

    def values(self, count: int) -> list[float | None]:
        """Return the losses of the first `count` steps; None if there is none, it is not finite, or it is unread."""
        return self._values[:count]


def _finite(loss: float | None) -> float | None:
    return float(loss) if loss is not None and math.isfinite(loss) else None
