"""The process groups of a mesh, as torch's DeviceMesh."""

from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from perfkit.capture.mesh import MeshLayout


def make_device_mesh(layout: MeshLayout, device_type: str, timeout: timedelta) -> DeviceMesh:
    """Create the process groups of a mesh; called by all ranks.

    torch's own `init_device_mesh` gives its groups torch's default timeout of half an hour.

    Args:
        layout: The dimensions.
        device_type: Kind of device.
        timeout: Limit of each collective.
    """
    groups = [_make_group(layout, name, timeout) for name in layout.sizes]
    ranks = torch.arange(layout.world_size).view(*layout.sizes.values())
    return DeviceMesh.from_group(
        groups if len(groups) > 1 else groups[0], device_type, ranks, mesh_dim_names=tuple(layout.sizes)
    )


def _make_group(layout: MeshLayout, name: str, timeout: timedelta) -> dist.ProcessGroup:
    """Return this rank's group along a dimension."""
    members = layout.groups(name)
    if len(members) == 1 and dist.group.WORLD is not None:
        return dist.group.WORLD
    made: tuple[dist.ProcessGroup, object] = dist.new_subgroups_by_enumeration(  # type: ignore[no-untyped-call]
        members, timeout=timeout, group_desc=f"mesh_{name}"
    )
    return made[0]
