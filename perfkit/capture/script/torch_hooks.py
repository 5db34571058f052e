"""Hooks into torch that a script does not notice: after a step of an optimizer, and before a profiler is created."""

import functools
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook


class OptimizerSteps:
    """Counts the steps of a script: those of the first optimizer that steps, in its thread, for as long as it lives.

    Args:
        step_on: Class of the optimizer to count; None is any.
    """

    def __init__(self, step_on: str | None) -> None:
        self._step_on = step_on
        self._counted: weakref.ref[Optimizer] | None = None
        self._thread: int | None = None
        self.seen: Counter[str] = Counter()
        """Steps by class of optimizer, of all optimizers."""
        self.count = 0
        """Steps of the counted optimizer."""

    def add(self, optimizer: Optimizer) -> bool:
        """Note a step of `optimizer`; returns whether it is a step of the script."""
        self.seen[type(optimizer).__name__] += 1
        counts = self._counts(optimizer)
        self.count += counts
        return counts

    def _counts(self, optimizer: Optimizer) -> bool:
        counted = self._counted() if self._counted else None
        if counted is None:
            if self._step_on not in (None, type(optimizer).__name__):
                return False
            self._counted = weakref.ref(optimizer)
            self._thread = threading.get_ident()
            return True
        return counted is optimizer and self._thread == threading.get_ident()


def after_optimizer_step(hook: Callable[..., None]) -> None:
    """Call `hook` with the optimizer, its arguments and keyword arguments, after each step of every optimizer."""
    register_optimizer_step_post_hook(_not_compiled(hook))


def before_profiler(hook: Callable[[], None]) -> None:
    """Call `hook` before a profiler of torch is created."""
    for profiler_class in (torch.profiler.profile, torch.autograd.profiler.profile):
        _call_before_init(profiler_class, hook)


def _not_compiled(hook: Callable[..., None]) -> Callable[..., None]:
    """Return `hook` marked as `torch.compiler.disable` marks it, which would import the compiler into every script."""

    def uncompiled(*args: Any) -> None:
        hook(*args)

    uncompiled._torchdynamo_disable = True  # type: ignore[attr-defined]
    return uncompiled


def _call_before_init(profiler_class: Any, hook: Callable[[], None]) -> None:
    init = profiler_class.__init__

    @functools.wraps(init)
    def hooked_init(self: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("enabled", True) and args[:1] != (False,):
            hook()
        init(self, *args, **kwargs)

    profiler_class.__init__ = hooked_init
