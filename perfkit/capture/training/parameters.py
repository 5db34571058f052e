"""A model's parameters whose parts are on several ranks: their memory, their gradients' norm, and their checksum."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from perfkit.schema.manifest import RankMemory


def local(tensor: Tensor) -> Tensor:
    """Return this rank's part of a tensor."""
    part: Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return part


def measure_memory(parameters: Iterable[nn.Parameter], optimizer: Optimizer) -> RankMemory:
    """Return the bytes that this rank holds, called when gradients and optimizer state exist.

    Args:
        parameters: The model's.
        optimizer: The one that holds this rank's state.
    """
    state = [value for values in optimizer.state.values() for value in values.values() if isinstance(value, Tensor)]
    held = [(parameter, parameter.grad) for parameter in parameters]
    return RankMemory(
        parameters_bytes=sum(local(parameter).nbytes for parameter, _ in held),
        gradients_bytes=sum(local(gradient).nbytes for _, gradient in held if gradient is not None),
        optimizer_bytes=sum(local(tensor).nbytes for tensor in state),
    )


def full_tensors(parameters: Iterable[nn.Parameter]) -> Iterator[Tensor]:
    """Yield each parameter with all its parts; called by all ranks that hold some."""
    for parameter in parameters:
        yield parameter.full_tensor() if isinstance(parameter, DTensor) else parameter


def clip_gradients(parameters: Iterable[nn.Parameter], limit: float, mesh: DeviceMesh) -> None:
    """Scale all gradients so that their norm over all ranks is at most `limit`; called by all ranks.

    torch's own `clip_grad_norm_` does not take tensors that are distributed in different ways together.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = _total_square(gradients, mesh).sqrt()
    scale = (limit / (norm + 1e-6)).clamp(max=1.0)
    torch._foreach_mul_([local(gradient) for gradient in gradients], scale)


def _total_square(gradients: Iterable[Tensor], mesh: DeviceMesh) -> Tensor:
    """Return the sum of the squares of all entries, each counted once."""
    parts: dict[tuple[str, ...], list[Tensor]] = defaultdict(list)
    for gradient in gradients:
        parts[_sharded_over(gradient)].append(local(gradient))
    total = torch.zeros((), device=mesh.device_type)
    for dimensions, tensors in sorted(parts.items()):
        square = torch.stack(torch._foreach_norm(tensors)).square().sum()
        for name in dimensions:
            dist.all_reduce(square, group=mesh.get_group(name))
        total = total + square
    return total


def _sharded_over(tensor: Tensor) -> tuple[str, ...]:
    """Return the dimensions of the mesh over which a tensor is split."""
    if not isinstance(tensor, DTensor):
        return ()
    names = tensor.device_mesh.mesh_dim_names or ()
    return tuple(name for name, placement in zip(names, tensor.placements, strict=True) if placement.is_shard())
