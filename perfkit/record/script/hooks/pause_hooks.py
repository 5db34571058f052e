"""Hooks into torch that note when a script writes a checkpoint or evaluates its model, and leave both as they are.

A checkpoint is a call of `torch.save` that writes to a file, or of `save` and `async_save` of
torch.distributed.checkpoint. An evaluation is the time from `module.eval()` to `module.train()` of the same module,
without a backward pass or the end of a step between: a module that a script freezes for good, or evaluates without ever
switching back, is not told apart.
"""

import functools
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any, Final

import torch
from torch import nn

from perfkit.record.autograd_engine import COMPILER, uncompiled
from perfkit.record.import_hook import run_after_import
from perfkit.record.recording.pause_log import OpenPause, written_bytes

_DISTRIBUTED: Final = "torch.distributed.checkpoint"

Pause = Callable[[], AbstractContextManager[OpenPause | None]]
"""Begins a checkpoint; None where it is not noted."""


def around_checkpoints(pause: Pause) -> None:
    hooked = torch.save = torch.serialization.save = _around_save(torch.save, pause)

    def leave_alone() -> None:
        if torch.save is hooked:
            torch.save = torch.serialization.save = uncompiled(hooked)

    run_after_import(COMPILER, leave_alone)
    run_after_import(_DISTRIBUTED, lambda: _around_distributed(pause))


def _around_save(save: Callable[..., Any], pause: Pause) -> Callable[..., Any]:
    @functools.wraps(save)
    def hooked(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_on_disk(f):
            return save(obj, f, *args, **kwargs)
        with pause() as noted:
            if noted:
                noted.called_in(sys._getframe())
            before = _position(f) if noted else None
            result = save(obj, f, *args, **kwargs)
            if noted and (after := _position(f)) is not None:
                noted.wrote(after - (before or 0) if hasattr(f, "tell") else after)
            return result

    return hooked


def _is_on_disk(target: Any) -> bool:
    """Return whether a checkpoint is a path or an open file: in memory, it may be measured, sent or copied."""
    if isinstance(target, (str, os.PathLike)):
        return True
    with suppress(AttributeError, NotImplementedError, OSError, TypeError, ValueError):
        target.fileno()
        return True
    return False


def _position(target: Any) -> int | None:
    """Return the size of the file at a path, or the position in an open one; None if unknown."""
    with suppress(OSError, TypeError, ValueError):
        return int(target.tell() if hasattr(target, "tell") else os.path.getsize(target))
    return None


def _around_distributed(pause: Pause) -> None:
    package: Any = __import__(_DISTRIBUTED, fromlist=["state_dict_saver"])
    for name, asynchronous in (("save", False), ("async_save", True)):
        hooked = _around_distributed_save(getattr(package, name), pause, asynchronous)
        setattr(package, name, hooked)
        setattr(package.state_dict_saver, name, hooked)


def _around_distributed_save(save: Callable[..., Any], pause: Pause, asynchronous: bool) -> Callable[..., Any]:
    @functools.wraps(save)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        with pause() as noted:
            if noted:
                noted.called_in(sys._getframe())
            result = save(*args, **kwargs)
            if noted and asynchronous:
                noted.asynchronous = True
            elif noted and (size := written_bytes(kwargs.get("checkpoint_id"))) is not None:
                noted.wrote(size)
            return result

    return hooked


def around_evaluations(begin: Callable[[nn.Module], None], end: Callable[[nn.Module], None]) -> None:
    """Call `end` after the outermost calls of `Module.train`, and `begin` after those that end a module's training."""
    train = nn.Module.train
    inside = [False]

    @functools.wraps(train)
    def hooked(self: nn.Module, mode: bool = True) -> Any:
        if inside[0] or torch.compiler.is_compiling():
            return train(self, mode)
        was_training, inside[0] = self.training, True
        try:
            result = train(self, mode)
        finally:
            inside[0] = False
        if mode:
            end(self)
        elif was_training:
            begin(self)
        return result

    nn.Module.train = hooked  # type: ignore[method-assign]
