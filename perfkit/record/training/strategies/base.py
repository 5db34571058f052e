"""The base class of strategies: wrapping a model, averaging its gradients, making its optimizer.

Importing this module does not import torch: options are checked without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor, nn
    from torch.distributed.device_mesh import DeviceMesh
    from torch.optim import Optimizer

    from perfkit.options.run import RunConfig
    from perfkit.records.manifest import RankMemory
    from perfkit_workloads.base import Optimization, OptimizerFactory


class Strategy(ABC):
    """How the ranks of a data-parallel group share the parameters, gradients and optimizer state of one model.

    The module imports torch inside methods only: the command line checks the class's attributes.
    """

    name: ClassVar[str]
    DIMENSIONS: ClassVar[tuple[str, ...]] = ("dp",)
    """The data-parallel dimensions of its mesh."""
    USES_DDP: ClassVar[bool] = False
    """Whether DDP averages the gradients, so that DDP's own options have an effect."""
    GATHERS_LAYERS: ClassVar[bool] = False
    """Whether it gathers the parameters of each layer before the layer computes."""

    OWN_PRECISION: ClassVar[bool] = False
    """Whether it computes in the run's precision, and scales losses, by itself."""
    PACKAGES: ClassVar[Mapping[str, str]] = {}
    """Packages that it imports, and the extra of perfkit that installs each."""

    def __init__(self, run: RunConfig, mesh: DeviceMesh | None) -> None:
        self.run = run
        self.mesh = mesh

    @classmethod
    def find_problems(cls, run: RunConfig) -> Iterator[str]:  # noqa: ARG003
        """Yield which options it does not support, the most important first.

        Raises:
            UsageError: A file that an option names cannot be read.
        """
        yield from ()

    @classmethod
    def find_start_problems(cls, run: RunConfig, replicas: int, device_type: str) -> Iterator[str]:  # noqa: ARG003
        """Yield why a run cannot start that has `replicas` ranks with different samples, on this type of device."""
        yield from ()

    @abstractmethod
    def wrap(self, model: nn.Module, layers: Sequence[nn.Module]) -> nn.Module:
        """Return `model` so that its gradients are averaged over the data-parallel ranks.

        Args:
            model: The model, on its device, the same on all data-parallel ranks; may be changed in place.
        """

    @abstractmethod
    def averaging(self, model: nn.Module, *, last: bool, first_step: bool) -> AbstractContextManager[Any]:
        """Return the context of one micro-step, in which gradients are averaged if it is the `last` of its step."""

    def optimizer_factory(self) -> OptimizerFactory | None:
        """Return what makes the optimizer; None leaves that to the workload."""
        return None

    def start(self, model: nn.Module, optimization: Optimization) -> tuple[nn.Module, Optimization]:
        """Return what is called in forward passes, and what updates its parameters."""
        return model, optimization

    def backward(self, model: nn.Module, loss: Tensor, *, last: bool) -> None:  # noqa: ARG002
        """Compute the gradients of one micro-step.

        Args:
            model: What `start` has returned.
            loss: Divided by the micro-steps of a step, and scaled for the precision.
            last: Whether the optimizer steps after this micro-step.
        """
        loss.backward()  # type: ignore[no-untyped-call]

    def memory(self) -> RankMemory | None:
        """Return what this rank held in its first step, if the strategy counts it itself."""
        return None

    def gathered(self, model: nn.Module) -> AbstractContextManager[Any]:  # noqa: ARG002
        """Return a context in which a rank can read what it has parts of; entered by all ranks."""
        return nullcontext()

    def finish_backward(self, model: nn.Module) -> None:  # noqa: B027  # most have nothing to do
        """Do what remains after the last micro-step's backward pass."""

    def local_optimizer(self, optimizer: Optimizer) -> Optimizer:
        return optimizer
