"""Hooks the calls with which torch's Python code enters autograd's engine.

torch.compile knows `torch.autograd.backward` and `torch.autograd.grad` by identity, and compiles a program differently,
or refuses to, where something else has taken their place. Both call one function that the compiler never meets.
"""

import functools
from collections.abc import Callable
from typing import Any, Final

import torch

from perfkit.record.import_hook import run_after_import

COMPILER: Final = "torch._dynamo"
"""Loading it takes seconds: hooks wait until a program has done so."""
_ENGINE: Final = "_engine_run_backward"
"""torch calls it internal."""

Function = Callable[..., Any]


def hook_engine(wrap: Callable[[Function], Function], *, accumulates: bool) -> Callable[[], None]:
    """Replace what runs the engine for `backward` if it accumulates gradients, else for `grad`; returns the undoing.

    Args:
        wrap: Returns what runs in place of a function whose first argument is what the pass begins from.
        accumulates: Whether gradients are added to `.grad`, or returned.
    """
    owners = [owner for owner in (torch.autograd, getattr(torch.autograd, "graph", None)) if hasattr(owner, _ENGINE)]
    if not owners:  # an older torch
        name = "backward" if accumulates else "grad"
        return _replace([torch.autograd], name, wrap(getattr(torch.autograd, name)))
    engine = getattr(torch.autograd, _ENGINE)
    wrapped = wrap(engine)

    @functools.wraps(engine)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("accumulate_grad", accumulates) != accumulates or _is_traced():
            return engine(*args, **kwargs)
        return wrapped(*args, **kwargs)

    return _replace(owners, _ENGINE, hooked)


def uncompiled(function: Function) -> Function:
    """Return `function`, which torch.compile leaves alone with all that it calls; it must have been loaded."""
    disabled: Function = torch.compiler.disable(function)  # type: ignore[no-untyped-call]
    return disabled


def _is_traced() -> bool:
    """Return whether torch.compile traces what runs: the gradients are then none of the program's."""
    context = getattr(getattr(torch, "_guards", None), "TracingContext", None)
    try_get = getattr(context, "try_get", None)  # torch calls all of this internal
    return torch.compiler.is_compiling() or (try_get is not None and try_get() is not None)


def _replace(owners: list[Any], name: str, hooked: Function) -> Callable[[], None]:
    original = getattr(owners[0], name)
    current = [hooked]

    def exchange(before: Function, after: Function) -> None:
        for owner in owners:
            if getattr(owner, name) is before:  # else the program has replaced it
                setattr(owner, name, after)

    def leave_alone() -> None:
        before, current[0] = current[0], uncompiled(hooked)
        exchange(before, current[0])

    def undo() -> None:
        exchange(current[0], original)

    exchange(original, hooked)
    run_after_import(COMPILER, leave_alone)
    return undo
