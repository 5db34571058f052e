"""What shows whether the ranks of a script are replicas that train on different data: `--check-replicas`.

Hashes of the first batches, and some parameters when the first updates have been made. Memory is read directly, not by
operators of torch, which would be in the trace. Only parameters are copied from a device, before steps are recorded.
"""

import ctypes
import hashlib
import math
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from perfkit.records.manifest import ReplicaCheck

_BATCHES: Final = 4
_MOST_TENSORS: Final = 8
_PIECES: Final = 64
_PIECE_BYTES: Final = 256
"""Of a tensor 16 KiB are hashed, all over it; a smaller one is as a whole."""
_UPDATES: Final = 2
"""After so many updates parameters are read."""
_LARGEST: Final = 8
"""So many matrices, of which two elements each are read: vectors often begin with a constant."""


class ReplicaChecks:
    """Notes what a rank trains on and from, in the first steps of this process."""

    def __init__(self, *, enabled: bool) -> None:
        self._batches: list[str | None] = []
        self._inputs: list[str | None] = []
        self._parameters: list[float] = []
        self._bytes: int | None = None
        self._left = _BATCHES if enabled else 0
        self._updates = 0 if enabled else _UPDATES + 1
        self._optimizer: weakref.ref[Optimizer] | None = None

    def note_batch(self, batch: Any) -> None:
        if len(self._batches) < self._left:
            self._batches.append(_hash_of(tuple(batch) if isinstance(batch, list | tuple) else (batch,)))

    def note_inputs(self, inputs: tuple[Any, ...]) -> None:
        """Note what the forward pass of a model begins with."""
        if len(self._inputs) < self._left:
            self._inputs.append(_hash_of(inputs))

    def after_update(self, optimizer: Optimizer) -> None:
        """Note an update of parameters; those of the first optimizer count."""
        if self._updates < _UPDATES and (self._optimizer is None or self._optimizer() is optimizer):
            self._optimizer = weakref.ref(optimizer)
            self._updates += 1

    def after_backward(self, *, recorded: bool) -> None:
        """Read parameters after the first updates, and what a script does with the parameters after those."""
        optimizer = self._optimizer() if self._optimizer is not None and self._updates == _UPDATES else None
        if optimizer is None:
            return
        self._updates += 1
        if not recorded:
            with suppress(Exception), torch.no_grad():  # the outermost boundary: parameters are the script's
                self._read(optimizer)

    def result(self, *, is_whole_batch: bool) -> ReplicaCheck | None:
        """Return what is known by now; None if nothing is.

        Args:
            is_whole_batch: Whether the model is given as many samples as the loader returns: a script may give each
                rank its part of a batch.
        """
        known = [self._inputs] + ([self._batches] if is_whole_batch else [])
        hashes = next(([one for one in some if one] for some in known if some and None not in some), [])
        if not hashes and not self._parameters:
            return None
        return ReplicaCheck(batches=hashes, parameters=self._parameters, parameters_bytes=self._bytes)

    def _read(self, optimizer: Optimizer) -> None:
        if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack():
            return  # what the script sees every operator with
        parameters = [one for group in optimizer.param_groups for one in group["params"]]
        # A shard or a fake tensor is of another class.
        if any(type(one) not in {Tensor, nn.Parameter} for one in parameters) or _is_capturing():
            return
        self._bytes = sum(one.numel() * one.element_size() for one in parameters if one.requires_grad)
        matrices = [one for one in parameters if one.dim() > 1 and one.numel()]
        largest = sorted(matrices, key=lambda one: -one.numel())[:_LARGEST]
        read = [float(one[tuple(at)]) for one in largest for at in ([0] * one.dim(), [n // 2 for n in one.shape])]
        self._parameters = read if all(map(math.isfinite, read)) else []


def _is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _hash_of(values: tuple[Any, ...]) -> str | None:
    """Return a hash of the first tensors; None if there are none, or one is not in one piece in the host's memory."""
    digest, count = hashlib.blake2b(digest_size=8), 0
    # A mode of the script's does not see it, and torch.compile does not compile it.
    with torch._C.DisableTorchFunction():
        for tensor in islice(tensors_in(values), _MOST_TENSORS):
            if type(tensor) is not Tensor or tensor.device.type != "cpu" or not tensor.is_contiguous():
                return None
            size, address = tensor.numel() * tensor.element_size(), tensor.data_ptr()
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
            for offset in range(0, size, max(_PIECE_BYTES, size // _PIECES)):
                digest.update(ctypes.string_at(address + offset, min(_PIECE_BYTES, size - offset)))
            count += 1
    return digest.hexdigest() if count else None


def tensors_in(inputs: tuple[Any, ...]) -> Iterator[Tensor]:
    """Yield the tensors of a call, and of the mappings (batches by name) in it."""
    for one in inputs:
        if isinstance(one, Tensor):
            yield one
        elif isinstance(one, Mapping):
            yield from (value for value in one.values() if isinstance(value, Tensor))
