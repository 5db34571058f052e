"""The base class of strategies: wrapping a model, averaging its gradients, making its optimizer.

Importing this module does not import torch: options are checked without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.optim import Optimizer

    from perfkit.capture.config import RunConfig
    from workloads.base import OptimizerFactory


class Strategy(ABC):
    """How the ranks of a data-parallel group share the parameters, gradients and optimizer state of one model.

    The module imports torch inside methods only: the command line checks the class's attributes.

    Args:
        run: Options of the run.
        mesh: The ranks' mesh; None if its only dimension is `dp`.
    """

    name: ClassVar[str]
    DIMENSIONS: ClassVar[tuple[str, ...]] = ("dp",)
    """The data-parallel dimensions of its mesh."""
    USES_DDP: ClassVar[bool] = False
    """Whether DDP averages the gradients, so that DDP's own options have an effect."""
    GATHERS_LAYERS: ClassVar[bool] = False
    """Whether it gathers the parameters of each layer before the layer computes."""

    def __init__(self, run: RunConfig, mesh: DeviceMesh | None) -> None:
        self.run = run
        self.mesh = mesh

    @abstractmethod
    def wrap(self, model: nn.Module, layers: Sequence[nn.Module]) -> nn.Module:
        """Return `model` so that its gradients are averaged over the data-parallel ranks.

        Args:
            model: The model, on its device, the same on all data-parallel ranks; may be changed in place.
            layers: Its repeated layers.
        """

    @abstractmethod
    def averaging(self, model: nn.Module, *, last: bool, first_step: bool) -> AbstractContextManager[Any]:
        """Return the context of one micro-step, in which gradients are averaged if it is the `last` of its step.

        Args:
            model: The wrapped model.
            last: Whether the optimizer steps after this micro-step.
            first_step: Whether this is the first step of the run.
        """

    def optimizer_factory(self) -> OptimizerFactory | None:
        """Return what makes the optimizer; None leaves that to the workload."""
        return None

    def finish_backward(self, model: nn.Module) -> None:  # noqa: B027  # most have nothing to do
        """Do what remains after the last micro-step's backward pass."""

    def local_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """Return the optimizer that holds this rank's state."""
        return optimizer
