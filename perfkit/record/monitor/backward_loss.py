"""The loss of a script's step: what its backward passes begin from, summed over them.

With gradients accumulated over several passes, the loss of each is divided by their number as a rule, so that the sum
is their mean. On a device they are not summed: several are unknown there. A loss that a GradScaler has scaled is not
the loss: it is unknown.
"""

from typing import Any, Final

import torch
from torch import Tensor
from torch.nn import Parameter

_function_modes: Final = torch._C._len_torch_function_stack
_dispatch_modes: Final = torch._C._len_torch_dispatch_stack
_transforms: Final = torch._C._functorch.peek_interpreter_stack
"""Of `torch.func`; None without any."""


class BackwardLoss:
    """Collects the losses of the step in progress. It computes nothing on a device, and waits for none."""

    def __init__(self) -> None:
        self.wanted = False
        self._sum: float | None = None
        self._on_device: Tensor | None = None
        self._unknown = False

    def start(self) -> None:
        self._sum = self._on_device = None
        self._unknown = False

    def scaled(self) -> None:
        self._unknown = True

    def note(self, loss: Any) -> None:
        """Note what a backward pass has begun from; what cannot be read without side effects is unknown."""
        try:
            if _function_modes():
                with torch._C.DisableTorchFunction():  # a mode of the program's
                    self._note(loss)
            else:
                self._note(loss)
        except Exception:  # noqa: BLE001  the outermost boundary: beyond it is the program's backward pass
            self._unknown = True

    def _note(self, loss: Any) -> None:
        # A subclass has its own code, and something in the program may see each operator: reading is one.
        if (
            type(loss) not in (Tensor, Parameter)
            or _dispatch_modes()
            or _transforms() is not None
            or loss.numel() != 1
            or loss.is_complex()
        ):
            self._unknown = True
        elif loss.is_cpu:
            self._unknown |= self._on_device is not None
            self._sum = (self._sum or 0.0) + loss.item()
        else:
            self._unknown |= self._sum is not None or self._on_device is not None
            self._on_device = loss.detach()

    def get(self) -> Tensor | float | None:
        """Return the loss, on its device; None if there was none, or it is not known."""
        if self._unknown:
            return None
        return self._sum if self._on_device is None else self._on_device
