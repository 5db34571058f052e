"""Follows the forward and backward passes of a script: annotates them in its trace, and reports where they end.

A forward pass is the outermost call of a module with parameters; of the modules inside it nothing is noted, nor of
those that a backward pass calls again (activation checkpointing).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import get_ident
from typing import Any, ClassVar, Final

from torch import nn

from perfkit.phases import Phase, annotation
from perfkit.record.script.hooks.torch_hooks import ModuleCalls, NoteInputs, in_backward, own_parameters
from perfkit.record.spans import begin_span, end_span

_MOST_SEEN: Final = 8
"""Classes of modules that a message lists."""


class Annotations:
    """Whether passes are annotated, and in which thread: that of the steps."""

    def __init__(self) -> None:
        self._thread: int | None = None

    def enable(self, enabled: bool) -> None:
        self._thread = get_ident() if enabled else None

    def begin(self, phase: Phase) -> Any:
        return begin_span(annotation(phase)) if self._thread == get_ident() else None

    def end(self, span: Any) -> None:
        if span is not None:
            end_span(span)


class _Passes(ABC):
    """Annotates passes of one kind; a pass inside another one of the thread is a part of that.

    Args:
        on_end: Called with what the pass was called with first, after each that has not failed.
        on_error: Called with an error of this class's own: none may reach the script.
    """

    _phase: ClassVar[Phase]

    def __init__(
        self, annotations: Annotations, on_end: Callable[[Any], None], on_error: Callable[[Exception], None]
    ) -> None:
        self._annotations = annotations
        self._on_end = on_end
        self._on_error = on_error
        self._spans: dict[int, Any] = {}

    def begin(self, subject: Any) -> bool:
        """Note that a call begins; returns whether it is a pass."""
        thread = get_ident()
        if thread in self._spans:
            return False
        try:
            if not self._is_pass(subject) or in_backward():
                return False
            self._spans[thread] = self._annotations.begin(self._phase)
        except Exception as error:  # noqa: BLE001  it must not reach the script
            self._on_error(error)
            return False
        return True

    def end(self, subject: Any, failed: bool) -> None:
        try:
            self._annotations.end(self._spans.pop(get_ident(), None))
        except Exception as error:  # noqa: BLE001  it must not reach the script
            self._on_error(error)
        if not failed:
            self._on_end(subject)

    @abstractmethod
    def _is_pass(self, subject: Any) -> bool: ...


class BackwardPasses(_Passes):
    """The hook of backward passes, whose subject are the tensors that they begin from."""

    _phase = "backward"

    def _is_pass(self, _subject: Any) -> bool:
        return True


class ForwardPasses(_Passes):
    """The hook of modules."""

    _phase = "forward"

    def __init__(
        self,
        module: str | None,
        annotations: Annotations,
        on_end: Callable[[nn.Module], None],
        on_error: Callable[[Exception], None],
        note_inputs: NoteInputs | None = None,
    ) -> None:
        super().__init__(annotations, on_end, on_error)
        self._module = module
        self.calls = ModuleCalls(self.begin, self.end, note_inputs)
        """Calls this hook around each call of a module, once installed."""
        self.seen: dict[str, None] = {}
        """Classes of the first modules that were called, if the module is chosen by its class."""

    def _is_pass(self, module: nn.Module) -> bool:
        if self._module is None:
            return any(True for _ in own_parameters(module))
        # torch.compile calls the module that it wraps in its own way. TorchScript's modules have no `get` for theirs.
        within = vars(module).get("_modules", {})
        inner = within["_orig_mod"] if "_orig_mod" in within else module  # noqa: SIM401
        name = type(inner).__name__
        if len(self.seen) < _MOST_SEEN:
            self.seen[name] = None
        return name == self._module
