"""A model's parameters whose parts are on several ranks: their memory, their gradients' norm, and their checksum."""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from perfkit.records.manifest import RankMemory

if TYPE_CHECKING:
    from perfkit.record.training.local_parameters import Part


class TrainedParameters:
    """The parameters of the model that this rank trains.

    Args:
        mesh: The ranks' mesh; None if every rank has all of every parameter.
        parts: The parameters that are parts of distributed tensors, and which.
        copies: Parameters that another stage of the pipeline has too.
    """

    def __init__(
        self,
        model: nn.Module,
        mesh: DeviceMesh | None,
        parts: "Mapping[nn.Parameter, Part]",
        copies: Iterable[nn.Parameter] = (),
    ) -> None:
        self._model = model
        self._mesh = mesh
        self._parts = parts
        self._copies = [*copies]

    def measure_memory(self, optimizer: Optimizer) -> RankMemory:
        """Return the bytes that this rank holds, called when gradients and optimizer state exist."""
        state = [value for values in optimizer.state.values() for value in values.values() if isinstance(value, Tensor)]
        held = [(parameter, parameter.grad) for parameter in self._model.parameters()]
        return RankMemory(
            parameters_bytes=sum(local_part(parameter).nbytes for parameter, _ in held),
            gradients_bytes=sum(local_part(gradient).nbytes for _, gradient in held if gradient is not None),
            optimizer_bytes=sum(local_part(tensor).nbytes for tensor in state),
        )

    def whole(self) -> Iterator[Tensor]:
        """Yield each parameter with all its parts; called by all ranks that hold some."""
        # It warns that gathering along two dimensions takes two collectives: this happens once, after the last step.
        logging.getLogger("torch.distributed.tensor._redistribute").setLevel(logging.ERROR)
        for parameter in self._model.parameters():
            part = self._parts.get(parameter)
            tensor = parameter.detach() if part is None else part(parameter.detach())
            yield tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor

    def clip_gradients(self, limit: float) -> None:
        """Scale all gradients so that their norm over all ranks is at most `limit`; called by all ranks.

        torch's own `clip_grad_norm_` does not take tensors that are distributed in different ways together.
        """
        if self._mesh is None:
            nn.utils.clip_grad_norm_(self._model.parameters(), limit)
            return
        scale = (limit / (self._total_square(self._mesh).sqrt() + 1e-6)).clamp(max=1.0)
        gradients = [local_part(p.grad) for p in self._model.parameters() if p.grad is not None]
        torch._foreach_mul_(gradients, scale)

    def _total_square(self, mesh: DeviceMesh) -> Tensor:
        """Return the sum of the squares of all entries of all gradients, each counted once."""
        parts: dict[tuple[str, ...], list[Tensor]] = defaultdict(list)
        for parameter in self._model.parameters():
            if parameter.grad is not None and not any(parameter is copy for copy in self._copies):
                parts[self._split_over(parameter)].append(local_part(parameter.grad))
        total = torch.zeros((), device=mesh.device_type)
        for dimensions, tensors in sorted(parts.items()):
            square = torch.stack(torch._foreach_norm(tensors)).square().sum()
            for name in dimensions:
                dist.all_reduce(square, group=mesh.get_group(name))
            total = total + square
        if "pp" in (mesh.mesh_dim_names or ()):
            dist.all_reduce(total, group=mesh.get_group("pp"))
        return total

    def _split_over(self, parameter: nn.Parameter) -> tuple[str, ...]:
        """Return the dimensions of the mesh over which a parameter is split."""
        from torch.distributed.tensor import DTensor

        distributed = parameter if isinstance(parameter, DTensor) else self._parts.get(parameter)
        if distributed is None:
            return ()
        names = distributed.device_mesh.mesh_dim_names or ()
        return tuple(
            # One that is split twice along the same axis is not a `Shard` but a strided one.
            name
            for name, placement in zip(names, distributed.placements, strict=True)
            if not placement.is_replicate()
        )


def local_part(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor.

    Distributed tensors are told by their method: importing their class takes time, which plain DDP does not need.
    """
    part: Tensor = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return part
