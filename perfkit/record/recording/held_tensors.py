"""Notes where an optimizer's parameters, gradients and state are in memory, for the trace's header.

A trace with `profile_memory` contains addresses and sizes of what was allocated while it was recorded, but not what
for: only with this is certain what holds parameters, gradients and optimizer state, and that they are there at all if
they were allocated earlier (metrics.md section 11).
"""

import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from perfkit.record.autograd_engine import COMPILER, uncompiled
from perfkit.record.step_listener import Recorder
from perfkit.records.trace_header import RecordedTensors

_MOST: Final = 100_000
"""Memory blocks that are noted per cycle at most; the header has a line of about 25 bytes for each."""

_PLAIN: Final = (Tensor, nn.Parameter)

_Address = tuple[int, int]
"""Number of the device (-1 is the host), and address."""
_Blocks = dict[_Address, int]
"""Bytes of tensors by where their memory begins."""


class HeldTensors(Recorder):
    """Notes what each optimizer holds whenever a step of it begins, between `start` and `stop`.

    Gradients are noted in each step, parameters and state when there are new ones: they rarely move.
    """

    def __init__(self) -> None:
        self._handle: Any = None
        self._known: set[_Address] = set()
        self._seen: WeakKeyDictionary[Optimizer, tuple[int, int]] = WeakKeyDictionary()
        """Numbers of parameters and of those with state, when an optimizer's were last noted."""
        self._noted = 0
        self._records: list[RecordedTensors] = []

    def start(self) -> None:
        self._known.clear()
        self._seen.clear()
        self._noted, self._records = 0, []
        note = uncompiled(self._note) if COMPILER in sys.modules else self._note
        self._handle = register_optimizer_step_pre_hook(note)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.remove()
            self._handle = None

    def records(self) -> list[RecordedTensors] | None:
        """Return what was noted; None if there were too many tensors."""
        return self._records if self._noted <= _MOST else None

    def _note(self, optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        if self._noted > _MOST:
            return
        now_ns = time.time_ns()
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        found = {"gradients": _blocks(parameter.grad for parameter in parameters if parameter.grad is not None)}
        if self._seen.get(optimizer) != (count := (len(parameters), len(optimizer.state))):
            self._seen[optimizer] = count
            found["parameters"] = self._fresh(_blocks(parameters))
            found["optimizer_state"] = self._fresh(_blocks(_tensors(optimizer.state.values())))
        self._noted += sum(map(len, found.values()))
        for device in sorted({at[0] for blocks in found.values() for at in blocks}):
            here = {
                kind: [(address, size) for (number, address), size in blocks.items() if number == device]
                for kind, blocks in found.items()
            }
            self._records.append(RecordedTensors(ns=now_ns, device=device, **here))

    def _fresh(self, blocks: _Blocks) -> _Blocks:
        """Return the blocks that were not noted before."""
        fresh = {at: size for at, size in blocks.items() if at not in self._known}
        self._known |= fresh.keys()
        return fresh


def _tensors(states: Iterable[Any]) -> Iterator[Tensor]:
    """Yield the tensors of an optimizer's state, also those within lists and mappings."""
    for value in states:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, dict):
            yield from _tensors(value.values())
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _blocks(tensors: Iterable[Tensor]) -> _Blocks:
    """Return the bytes of tensors by the memory block that they are in; of distributed ones, the rank's part."""
    sizes: dict[tuple[_Address, int, int], int] = {}
    for tensor in tensors:
        # Importing the class of distributed tensors takes time, which most programs do not need.
        part = tensor if type(tensor) in _PLAIN or not hasattr(tensor, "to_local") else tensor.to_local()
        if part.layout is not torch.strided:
            continue
        device, size = part.device, part.nbytes
        at = (-1 if device.type == "cpu" else device.index or 0), part.untyped_storage().data_ptr()
        # Two views of the same bytes, such as a tied weight, count once.
        sizes[at, part.data_ptr(), size] = size
    blocks: _Blocks = defaultdict(int)
    for (at, _, _), size in sizes.items():
        if at[1]:
            blocks[at] += size
    return blocks
