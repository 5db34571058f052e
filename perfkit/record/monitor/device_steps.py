"""Durations of steps on an accelerator, and losses there: read when the device has come so far, never waited for."""

from collections import deque
from collections.abc import Iterator
from math import nan
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from perfkit.records.monitor import LOSS_GIVEN, StepRecord

MOST_WAITING: Final = 32
"""Steps that wait for the device; the oldest of more is recorded without what the device knows."""


class _Waiting(NamedTuple):
    record: StepRecord
    begin: Any
    end: Any
    """Events; None if none could be recorded."""
    slot: int
    """Of the loss in the buffer; -1 without one."""


class DeviceSteps:
    """The steps that the device has not finished, as far as is known."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module: Any = torch.get_device_module(device.type)
        self._begin: Any = None
        self._waiting: deque[_Waiting] = deque()
        self._losses: Tensor | None = None
        self._number = 0

    def begin(self) -> None:
        self._begin = self._mark()

    def end(self, record: StepRecord, loss: Tensor | None) -> None:
        slot = -1 if loss is None or self._is_capturing() else self._copy(loss)
        self._waiting.append(_Waiting(record, self._begin, self._mark(), slot))

    def finished(self) -> Iterator[StepRecord]:
        """Yield the records of the steps that the device has finished, in order, or that have waited for too long."""
        capturing = self._is_capturing()
        while self._waiting:
            first = self._waiting[0]
            known = first.begin is not None and first.end is not None
            reached = known and not capturing and bool(first.end.query())
            if not reached and known and len(self._waiting) <= MOST_WAITING:
                return
            self._waiting.popleft()
            yield self._complete(first) if reached else first.record

    def rest(self) -> Iterator[StepRecord]:
        """Yield the records of all steps, of those that the device has not finished without what it knows."""
        yield from self.finished()
        while self._waiting:
            yield self._waiting.popleft().record

    def _complete(self, one: _Waiting) -> StepRecord:
        paused_ns = max(one.record.pause_ns, 0)
        lasted_ns = max(0, round(one.begin.elapsed_time(one.end) * 1e6) - paused_ns)
        if one.slot < 0 or self._losses is None:
            return one.record._replace(device_ns=lasted_ns)
        flags = one.record.flags | LOSS_GIVEN
        return one.record._replace(device_ns=lasted_ns, loss=float(self._losses[one.slot]), flags=flags)

    def _copy(self, loss: Tensor) -> int:
        """Let the device copy a loss to the host once it is computed; returns its slot."""
        if self._losses is None:
            # One slot more than steps wait, and pinned: only then the host need not wait for the copy.
            self._losses = torch.full((MOST_WAITING + 2,), nan, dtype=torch.float64).pin_memory()
        self._number = (self._number + 1) % len(self._losses)
        self._losses[self._number].copy_(loss.detach().reshape(()).to(torch.float64), non_blocking=True)
        return self._number

    def _mark(self) -> Any:
        """Return an event that is recorded in the current stream; None while that is captured into a graph."""
        if self._is_capturing():
            return None
        event = self._module.Event(enable_timing=True)
        event.record(self._module.current_stream(self._device))
        return event

    def _is_capturing(self) -> bool:
        """Return whether kernels are being captured into a graph, which a question to the device would break."""
        ask = getattr(self._module, "is_current_stream_capturing", None)
        return ask is not None and bool(ask())
