"""What shows whether the ranks of a script are replicas that train on different data: `--check-replicas`.

Hashes of what the first steps train on, and of the parameters before and after the first updates. The host's memory
is read directly, not by operators of torch, which would be in the trace; that of a device is copied where no step is
recorded.
"""

import ctypes
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
from msgspec import Struct
from torch import Tensor, nn
from torch.optim import Optimizer

from perfkit.records.manifest import ReplicaCheck

_STEPS: Final = 4
_MOST_CALLS: Final = 64
"""Of a step so many batches, or inputs, are hashed."""
_MOST_TENSORS: Final = 8
_MOST_VALUES: Final = 256
"""So many values of a batch are searched for tensors."""
_PIECES: Final = 64
_PIECE_BYTES: Final = 256
"""Of a tensor 16 KiB are hashed, all over it; a smaller one is as a whole. On a device these are single elements."""
_UPDATES: Final = 2
"""Before the first update, and after so many, parameters are read: some scripts broadcast them after the first."""
_MOST_OPTIMIZERS: Final = 8

_Steps = list[list[str | None]]
"""Hashes of each step, the last of which is in progress; None: unknown."""


class _Parameters(Struct):
    """What is known of those of an optimizer."""

    updates: int = 0
    initial: str | None = None
    updated: str | None = None
    count: int = 0


class ReplicaChecks:
    """Notes what a rank trains on and from, in the first steps of this process.

    Args:
        enabled: Whether anything is noted.
        is_recorded: Whether the step in progress is recorded: nothing on a device is read then.
    """

    def __init__(self, *, enabled: bool, is_recorded: Callable[[], bool]) -> None:
        self._batches: _Steps = [[]]
        self._inputs: _Steps = [[]]
        self._most = _STEPS if enabled else 0
        self._optimizers: WeakKeyDictionary[Optimizer, _Parameters] = WeakKeyDictionary()
        self._known: list[_Parameters] = []
        """The same, of optimizers that are no more, too."""
        self._is_recorded = is_recorded

    def note_batch(self, batch: Any) -> None:
        """Note a batch of a loader."""
        self._note(self._batches, batch)

    def note_inputs(self, inputs: tuple[Any, ...]) -> None:
        """Note what the forward pass of a model begins with."""
        self._note(self._inputs, inputs)

    def end_step(self) -> None:
        """Note that a step has ended; one without batches, or inputs, is none of those that are compared."""
        for steps in (self._batches, self._inputs):
            if steps[-1]:
                steps.append([])

    def before_update(self, optimizer: Optimizer) -> None:
        """Read the parameters of an optimizer that is about to step, before some of its steps."""
        with suppress(Exception):  # the outermost boundary: optimizers and parameters are the script's
            self._before_update(optimizer)

    def _before_update(self, optimizer: Optimizer) -> None:
        seen = self._optimizers.get(optimizer)
        if seen is None:
            if not self._most or len(self._known) == _MOST_OPTIMIZERS:
                return
            seen = self._optimizers[optimizer] = _Parameters()
            self._known.append(seen)
        seen.updates += 1
        if seen.updates in (1, _UPDATES + 1) and not self._is_recorded():
            _read(optimizer, seen)

    def result(self, *, is_whole_batch: bool) -> ReplicaCheck | None:
        """Return what is known by now; None if nothing is.

        Args:
            is_whole_batch: Whether the model is given as many samples as the loader returns: a script may give each
                rank its part of a batch.
        """
        loaded, given = _by_step(self._batches), _by_step(self._inputs)
        read = [one for one in self._known if one.initial is not None and one.updated is not None]
        batches = given or (loaded if is_whole_batch else [])
        if not batches and not read:
            return None
        return ReplicaCheck(
            batches=batches,
            loaded=loaded,
            initial=[str(one.initial) for one in read],
            updated=[str(one.updated) for one in read],
            parameters=sum(one.count for one in read) if read else None,
        )

    def _note(self, steps: _Steps, values: Any) -> None:
        if len(steps) <= self._most and len(steps[-1]) < _MOST_CALLS:
            tensors = islice(_tensors_within(values), _MOST_TENSORS)
            steps[-1].append(None)  # as long as it is not known, which an error may end
            steps[-1][-1] = _hash_of(tensors, copies=not self._is_recorded())


def _by_step(steps: _Steps) -> list[str]:
    """Return a hash for each step that has ended; none if a part of them is unknown."""
    ended = [one for one in steps[:-1] if one]
    if any(part is None for one in ended for part in one):
        return []
    return [hashlib.blake2b("".join(map(str, one)).encode(), digest_size=8).hexdigest() for one in ended]


def _read(optimizer: Optimizer, seen: _Parameters) -> None:
    if torch._C._len_torch_dispatch_stack() or torch._C._len_torch_function_stack() or _is_capturing():
        return  # what the script sees every operator with
    parameters = [one for group in optimizer.param_groups for one in group["params"]]
    # A shard or a fake tensor is of another class.
    if any(type(one) not in {Tensor, nn.Parameter} for one in parameters):
        return
    value = _hash_of((one.data for one in parameters), copies=True)
    if seen.updates > 1:
        seen.updated = value
    else:
        seen.initial = value
    seen.count = sum(one.numel() for one in parameters if one.requires_grad)


def _is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


def _hash_of(tensors: Iterable[Tensor], *, copies: bool) -> str | None:
    """Return a hash of tensors; None if there are none, or one cannot be read: on a device, unless it `copies`."""
    digest, count = hashlib.blake2b(digest_size=8), 0
    # A mode of the script's does not see it, and torch.compile does not compile it.
    with torch._C.DisableTorchFunction():
        for tensor in tensors:
            if type(tensor) is not Tensor or tensor.is_meta or not (tensor.device.type == "cpu" or copies):
                return None
            digest.update(f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()}".encode())
            read = _pieces_of if tensor.device.type == "cpu" else _elements_of
            for piece in read(tensor) if tensor.numel() else ():
                digest.update(piece)
            count += 1
    return digest.hexdigest() if count else None


def _pieces_of(tensor: Tensor) -> Iterator[bytes]:
    """Yield parts of the host's memory from the first to the last element, what is between elements with them."""
    size, address = _extent(tensor) * tensor.element_size(), tensor.data_ptr()
    if not address:
        raise ValueError("the memory of a tensor was given back")
    for offset in range(0, size, max(_PIECE_BYTES, size // _PIECES)):
        yield ctypes.string_at(address + offset, min(_PIECE_BYTES, size - offset))


def _elements_of(tensor: Tensor) -> Iterator[bytes]:
    """Yield copies of elements all over the memory of a device from the first to the last one."""
    count = min(_PIECES, _extent(tensor))
    copied = tensor.detach().as_strided((count,), (_extent(tensor) // count,)).cpu().contiguous()
    yield ctypes.string_at(copied.data_ptr(), count * copied.element_size())


def _extent(tensor: Tensor) -> int:
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _tensors_within(values: Any) -> Iterator[Tensor]:
    """Yield the tensors within a batch, however it is nested: in mappings, sequences and attributes of its classes."""
    left = [values]
    for _ in range(_MOST_VALUES):
        if not left:
            return
        one = left.pop()
        if isinstance(one, Tensor):
            yield one
        elif not isinstance(one, nn.Module):
            left += reversed(list(islice(_members(one), _MOST_VALUES)))


def _members(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else getattr(value, "__dict__", {}).values()
