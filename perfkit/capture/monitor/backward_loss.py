"""The loss of a script's step: what its backward passes begin from, summed over them.

With gradients accumulated over several passes, the loss of each is divided by their number as a rule, so that the sum
is their mean. A loss that a GradScaler has scaled is not the loss: it is unknown.
"""

from typing import Any

from torch import Tensor


class BackwardLoss:
    """Collects the losses of the step in progress. It computes nothing on a device, and waits for none."""

    def __init__(self) -> None:
        self.wanted = False
        """Whether losses are noted."""
        self._sum: float | None = None
        self._on_device: Tensor | None = None
        self._unknown = False

    def start(self) -> None:
        """Begin a step."""
        self._sum = self._on_device = None
        self._unknown = False

    def scaled(self) -> None:
        """Note that the loss of this step is scaled."""
        self._unknown = True

    def note(self, loss: Any) -> None:
        """Note what a backward pass has begun from."""
        if not isinstance(loss, Tensor) or loss.numel() != 1 or loss.is_complex() or self._on_device is not None:
            self._unknown = True
        elif loss.device.type == "cpu":
            self._sum = (self._sum or 0.0) + loss.item()
        else:
            self._unknown |= self._sum is not None
            self._on_device = loss.detach()

    def get(self) -> Tensor | float | None:
        """Return the loss, on its device; None if there was none, or it is not known."""
        if self._unknown:
            return None
        return self._sum if self._on_device is None else self._on_device
