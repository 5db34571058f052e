"""Divides a model among the ranks that train on the same samples, before a data-parallel strategy wraps it."""

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from perfkit.options.mesh import MeshLayout
from perfkit.options.run import RunConfig
from perfkit.record.training.strategies.base import Strategy
from perfkit_workloads.base import Workload
from perfkit_workloads.parallel import ContextParallel, ExpertParallel, TensorParallel

if TYPE_CHECKING:
    from perfkit.record.training.local_parameters import Part


def divide_model(
    workload: Workload[Any], run: RunConfig, strategy: Strategy, mesh: DeviceMesh | None, model: nn.Module
) -> "dict[nn.Parameter, Part]":
    """Divide the bare `model` as the mesh asks for, in place; return the parameters that are parts of others."""
    dimensions = () if mesh is None else mesh.mesh_dim_names or ()
    if mesh is None:
        return {}
    parts: dict[nn.Parameter, Part] = {}
    if "tp" in dimensions:
        parts |= _shard_tensors(workload, run, strategy, mesh, model)
    if "cp" in dimensions:
        assert isinstance(workload, ContextParallel)  # noqa: S101  # the options were checked
        workload.divide_sequence(model, mesh["cp"])
    if "ep" in dimensions:
        parts |= _divide_experts(workload, mesh, model)
    return parts


def _shard_tensors(
    workload: Workload[Any], run: RunConfig, strategy: Strategy, mesh: DeviceMesh, model: nn.Module
) -> "dict[nn.Parameter, Part]":
    assert isinstance(workload, TensorParallel)  # noqa: S101  # the options were checked
    workload.shard_tensors(model, mesh["tp"], sequence=run.sequence_parallel, loss=run.loss_parallel)
    if not strategy.USES_DDP:
        return {}
    from perfkit.record.training.local_parameters import localize  # takes time to import

    return localize(model)


def _divide_experts(workload: Workload[Any], mesh: DeviceMesh, model: nn.Module) -> "dict[nn.Parameter, Part]":
    from torch.distributed.tensor import DTensor, Shard  # takes time to import

    from perfkit.record.training.local_parameters import Part

    assert isinstance(workload, ExpertParallel)  # noqa: S101  # the options were checked
    experts = workload.divide_experts(model, mesh["ep"])
    names = [name for name, parameter in model.named_parameters() if any(parameter is one for one in experts)]
    # Ranks of `ep` have different experts: DDP, which would average their gradients, leaves them alone.
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)  # type: ignore[no-untyped-call]
    return {
        parameter: Part(DTensor.from_local(parameter.detach(), mesh["ep"], [Shard(0)], run_check=False))
        for parameter in experts
    }


def make_device_mesh(layout: MeshLayout, device_type: str, timeout: timedelta) -> DeviceMesh:
    """Create the process groups of a mesh; called by all ranks.

    torch's own `init_device_mesh` gives its groups torch's default timeout of half an hour.
    """
    groups = [_make_group(layout, name, timeout) for name in layout.sizes]
    ranks = torch.arange(layout.world_size).view(*layout.sizes.values())
    return DeviceMesh.from_group(
        groups if len(groups) > 1 else groups[0], device_type, ranks, mesh_dim_names=tuple(layout.sizes)
    )


def _make_group(layout: MeshLayout, name: str, timeout: timedelta) -> dist.ProcessGroup:
    members = layout.groups(name)
    if len(members) == 1 and dist.group.WORLD is not None:
        return dist.group.WORLD
    made: tuple[dist.ProcessGroup, object] = dist.new_subgroups_by_enumeration(  # type: ignore[no-untyped-call]
        members, timeout=timeout, group_desc=f"mesh_{name}"
    )
    return made[0]
