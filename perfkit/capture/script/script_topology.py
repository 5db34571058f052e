"""Where the ranks of a script run, as far as one of them knows."""

import os
import socket

import torch

from perfkit.capture.distributed.backend import backend_of
from perfkit.capture.distributed.launcher_env import RankInfo
from perfkit.capture.distributed.topology import Topology, name_device, own_cores
from perfkit.schema.manifest import World


def script_topology(info: RankInfo, device: torch.device) -> Topology:
    """Return where this rank runs; all hosts are taken to have as many ranks as this one."""
    sizes = [info.local_world_size] * (info.world_size // info.local_world_size)
    return Topology(
        device=str(device),
        device_name=name_device(device),
        backend=backend_of(device.type),
        host=socket.gethostname(),
        threads=torch.get_num_threads(),
        # A rank that is bound to some cores does not know those of the other ranks.
        node_cores=os.cpu_count() if len(own_cores()) == os.cpu_count() else None,
        local_rank=info.local_rank,
        node_rank=info.node_rank or 0,
        world=World(world_size=info.world_size, nodes=len(sizes), launcher=info.launcher, local_world_sizes=sizes),
    )
