"""Hooks into torch that a script does not notice: around steps of an optimizer, forward and backward passes.

torch.compile must not trace them: it is told to leave them alone as soon as a script has loaded it, since loading it
takes seconds. A compiled call is left alone as a whole; its modules are not called one by one.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from perfkit.record.autograd_engine import COMPILER, hook_engine, uncompiled
from perfkit.record.import_hook import run_after_import
from perfkit.record.patching import Function, wrap_function


def in_backward() -> bool:
    """Return whether autograd's engine is running on this thread: no profiler may be started or stopped there."""
    return bool(torch._C._current_graph_task_id() != -1)


def before_optimizer_step(hook: Callable[[Optimizer], None]) -> None:
    """Call `hook` with the optimizer before each step of every optimizer."""
    _hook_steps(register_optimizer_step_pre_hook, hook)


def after_optimizer_step(hook: Callable[[Optimizer], None]) -> None:
    """Call `hook` with the optimizer after each step of every optimizer."""
    _hook_steps(register_optimizer_step_post_hook, hook)


def _hook_steps(register: Callable[[Any], Any], hook: Callable[[Optimizer], None]) -> None:
    def step_hook(optimizer: Optimizer, _args: Any, _kwargs: Any) -> None:
        hook(optimizer)

    handles = [register(step_hook)]

    def replace() -> None:
        handles.pop().remove()
        handles.append(register(uncompiled(step_hook)))

    run_after_import(COMPILER, replace)


def after_scaler_step(hook: Callable[[Any], None]) -> None:
    """Call `hook` with the optimizer after each `GradScaler.step`, whether or not it has stepped the optimizer."""
    step = torch.amp.GradScaler.step

    @functools.wraps(step)
    def hooked_step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        result = step(self, optimizer, *args, **kwargs)
        hook(optimizer)
        return result

    def leave_alone() -> None:
        nonlocal hook
        hook = uncompiled(hook)

    run_after_import(COMPILER, leave_alone)
    torch.amp.GradScaler.step = hooked_step  # type: ignore[method-assign]


Begin = Callable[[Any], bool]
"""Is told that a pass begins, of a module or from a loss; returns whether its end is wanted."""
End = Callable[[Any, bool], None]
"""Is told that it has ended, and whether by an error."""


def around_backward(begin: Begin, end: End) -> None:
    """Call both around each backward pass that adds gradients to `.grad`, with what it begins from."""

    def wrap(engine: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(engine)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            subject = args[0] if args else None
            if not begin(subject):
                return engine(*args, **kwargs)
            try:
                result = engine(*args, **kwargs)
            except BaseException:
                end(subject, True)
                raise
            end(subject, False)
            return result

        return hooked

    hook_engine(wrap, accumulates=True)


def after_gradients(hook: Callable[[], None]) -> None:
    """Call `hook` after each `torch.autograd.grad`, which returns gradients instead of adding them to `.grad`.

    torch's zero-bubble pipelines compute all gradients of a stage with it.
    """

    def wrap(engine: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(engine)
        def hooked(*args: Any, **kwargs: Any) -> Any:
            result = engine(*args, **kwargs)
            hook()
            return result

        return hooked

    hook_engine(wrap, accumulates=False)


NoteInputs = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]
"""Is told the module, the arguments and the named arguments of a forward pass before it runs."""


class ModuleCalls:
    """Calls functions around each call of a module, while installed.

    Unlike torch's global forward hooks it costs a compiled module nothing: it is no reason to compile it again.
    """

    def __init__(self, begin: Begin, end: End, note_inputs: NoteInputs | None = None) -> None:
        call, is_compiling = nn.Module.__call__, torch.compiler.is_compiling

        @functools.wraps(call)
        def hooked(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if is_compiling() or not begin(self):
                return call(self, *args, **kwargs)
            if note_inputs is not None:
                note_inputs(self, args, kwargs)
            try:
                result = call(self, *args, **kwargs)
            except BaseException:
                end(self, True)
                raise
            end(self, False)
            return result

        function: Any = hooked

        def leave_alone() -> None:
            nonlocal begin, end, note_inputs
            begin, end = uncompiled(begin), uncompiled(end)
            note_inputs = note_inputs and uncompiled(note_inputs)
            # It begins to compile with torch's own `Module.__call__`, and compiles the forward passes within. A
            # compiled function that calls this one is compiled with it.
            with contextlib.suppress(AttributeError):  # torch calls this internal
                torch._dynamo.eval_frame.skip_code(function.__code__)

        run_after_import(COMPILER, leave_alone)
        self._call = call
        self._hooked = hooked

    def install(self) -> None:
        """Hook the calls of all modules, unless they are hooked already or the script has replaced `__call__`."""
        if nn.Module.__call__ is self._call:
            nn.Module.__call__ = self._hooked  # type: ignore[method-assign]

    def remove(self) -> None:
        if nn.Module.__call__ is self._hooked:
            nn.Module.__call__ = self._call  # type: ignore[method-assign]


def before_profiler(hook: Callable[[], None]) -> None:
    """Call `hook` before a profiler of torch is created."""

    def around(init: Function) -> Function:
        def hooked_init(self: Any, *args: Any, **kwargs: Any) -> None:
            if kwargs.get("enabled", True) and args[:1] != (False,):
                hook()
            init(self, *args, **kwargs)

        return hooked_init

    for profiler_class in (torch.profiler.profile, torch.autograd.profiler.profile):
        wrap_function(profiler_class, "__init__", around)


def device_of(subject: Any) -> torch.device | None:
    """Return the device of an optimizer, a module or a loss; None if it has none.

    Neither a subclass of `Tensor` nor a mode of the script sees that it is read.
    """
    with contextlib.suppress(AttributeError, TypeError, ValueError, StopIteration, RuntimeError):
        if isinstance(subject, Optimizer):
            subject = (parameter for group in subject.param_groups for parameter in group["params"])
        elif isinstance(subject, nn.Module):
            subject = own_parameters(subject)
        first = subject if isinstance(subject, torch.Tensor) else next(iter(subject))
        with torch._C.DisableTorchFunction():
            return first.device if isinstance(first.device, torch.device) else None
    return None


def own_parameters(module: nn.Module) -> Iterator[torch.Tensor]:
    """Yield the parameters of a module and of those within, calling no method that the script may have replaced."""
    unseen, seen = [module], {id(module)}
    while unseen:
        fields = vars(unseen.pop())
        yield from (parameter for parameter in fields.get("_parameters", {}).values() if parameter is not None)
        for inner in fields.get("_modules", {}).values():
            if inner is not None and id(inner) not in seen:
                seen.add(id(inner))
                unseen.append(inner)
