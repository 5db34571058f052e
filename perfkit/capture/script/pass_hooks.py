"""Follows the forward and backward passes of a script: annotates them in its trace, and reports where they end.

A forward pass is the outermost call of a module with parameters; of the modules inside it nothing is noted, nor of
those that a backward pass calls again (activation checkpointing).
"""

from collections.abc import Callable
from threading import get_ident
from typing import Any, Final

from torch import nn
from torch.profiler import record_function

from perfkit.capture.script.torch_hooks import ModuleCalls, in_backward
from perfkit.phases import Phase, annotation

_MOST_SEEN: Final = 8
"""Classes of modules that a message lists."""


class Annotations:
    """Whether passes are annotated, and in which thread: that of the steps."""

    def __init__(self) -> None:
        self._thread: int | None = None

    def enable(self, enabled: bool) -> None:
        """Annotate the passes of this thread from now on, or none."""
        self._thread = get_ident() if enabled else None

    def begin(self, phase: Phase) -> Any:
        """Begin a phase; returns what `end` needs."""
        if self._thread != get_ident():
            return None
        span = record_function(annotation(phase))
        span.__enter__()  # type: ignore[no-untyped-call]
        return span

    def end(self, span: Any) -> None:
        """End the phase that `begin` has begun."""
        if span is not None:
            span.__exit__(None, None, None)


class BackwardPasses:
    """A `PassHook` of `torch.autograd.backward`.

    Args:
        annotations: Where the passes are annotated.
        on_end: Called with the loss (or losses) after a pass that is not part of another one.
        on_error: Called with an error of this class's own.
    """

    def __init__(
        self, annotations: Annotations, on_end: Callable[[Any], None], on_error: Callable[[Exception], None]
    ) -> None:
        self._annotations = annotations
        self._on_end = on_end
        self._on_error = on_error
        self._spans: dict[int, Any] = {}

    def begin(self, _subject: Any) -> bool:
        """Note that a pass begins."""
        try:
            if in_backward():
                return False
            self._spans[get_ident()] = self._annotations.begin("backward")
        except Exception as error:  # noqa: BLE001  it must not reach the script
            self._on_error(error)
            return False
        return True

    def end(self, subject: Any, failed: bool) -> None:
        """Note that the pass has ended."""
        try:
            self._annotations.end(self._spans.pop(get_ident(), None))
        except Exception as error:  # noqa: BLE001  it must not reach the script
            self._on_error(error)
        if not failed:
            self._on_end(subject)


class ForwardPasses:
    """A `PassHook` of modules.

    Args:
        module: Class of the module whose calls are forward passes; None is the outermost one with parameters.
        annotations: Where the passes are annotated.
        on_end: Called with the module after each pass.
        on_error: Called with an error of this class's own.
    """

    def __init__(
        self,
        module: str | None,
        annotations: Annotations,
        on_end: Callable[[nn.Module], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._module = module
        self._annotations = annotations
        self._on_end = on_end
        self._on_error = on_error
        self._spans: dict[int, Any] = {}
        self.calls = ModuleCalls(self)
        """The hook, which is not installed yet."""
        self.seen: dict[str, None] = {}
        """Classes of the first modules that were called, if the module is chosen by its class."""

    def begin(self, subject: nn.Module) -> bool:
        """Note that a module is called; returns whether this is a forward pass."""
        thread = get_ident()
        if thread in self._spans:
            return False
        try:
            if not self._is_chosen(subject) or in_backward():
                return False
            self._spans[thread] = self._annotations.begin("forward")
        except Exception as error:  # noqa: BLE001  it must not reach the script
            self._on_error(error)
            return False
        return True

    def end(self, subject: nn.Module, failed: bool) -> None:
        """Note that the forward pass has ended."""
        try:
            self._annotations.end(self._spans.pop(get_ident(), None))
        except Exception as error:  # noqa: BLE001  it must not reach the script
            self._on_error(error)
        if not failed:
            self._on_end(subject)

    def _is_chosen(self, module: nn.Module) -> bool:
        if self._module is None:
            return any(True for _ in module.parameters())
        inner = getattr(module, "_orig_mod", module)  # torch.compile calls the module that it wraps in its own way
        name = type(inner).__name__
        if len(self.seen) < _MOST_SEEN:
            self.seen[name] = None
        return name == self._module
