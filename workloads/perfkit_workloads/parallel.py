"""What a workload provides beyond `Workload` to be split between ranks. Importing this does not import torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor, nn
    from torch.distributed.device_mesh import DeviceMesh


class TensorParallel(ABC):
    """A workload that supports the mesh dimension `tp`."""

    @abstractmethod
    def shard_tensors(self, model: nn.Module, mesh: DeviceMesh, *, sequence: bool, loss: bool) -> None:
        """Split the matrices of the bare `model` over the one dimension of `mesh`, in place, as DTensors.

        Args:
            model: The same on all ranks.
            mesh: The ranks that share it.
            sequence: Whether what is between the matrices is split along the sequence.
            loss: Whether the model's output stays split along its classes; the loss is computed within torch's
                `loss_parallel`.
        """


class PipelineParallel(ABC):
    """A workload that supports the mesh dimension `pp`."""

    @abstractmethod
    def make_stage(self, model: nn.Module, index: int, count: int) -> nn.Module:
        """Return stage `index` of `count` of the bare `model`, which it takes apart: one input, one output."""

    @abstractmethod
    def tied_parameters(self, stage: nn.Module) -> list[nn.Parameter]:
        """Return the parameters of a bare stage of which the first and the last stage each have a copy."""

    @abstractmethod
    def split_batch(self, batch: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the input of the model and the target of its output."""

    @abstractmethod
    def output_loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the scalar loss of the model's output; that of a batch is the mean over equal parts of it."""


class ContextParallel(ABC):
    """A workload that supports the mesh dimension `cp`."""

    @abstractmethod
    def divide_sequence(self, model: nn.Module, mesh: DeviceMesh) -> None:
        """Divide each sequence among the ranks of `mesh`, in place, for the bare `model`.

        From then on `loss` takes whole sequences and returns the mean over this rank's equal part of them.
        """


class ExpertLayer(Protocol):
    """A mixture of experts in a model."""

    routed: Tensor
    """Tokens that each expert of this rank got in the latest forward pass."""


class ExpertParallel(ABC):
    """A workload that supports the mesh dimension `ep`."""

    @abstractmethod
    def divide_experts(self, model: nn.Module, mesh: DeviceMesh) -> list[nn.Parameter]:
        """Divide the experts of the bare `model` among the ranks of `mesh`, in place.

        Returns:
            This rank's parameters of experts: parts, along the first axis, of all ranks' parameters.
        """

    @abstractmethod
    def expert_layers(self, model: nn.Module) -> Sequence[ExpertLayer]:
        """Return the mixtures of experts of the bare `model`; none if it is dense."""
