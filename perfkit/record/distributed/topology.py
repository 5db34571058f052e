"""Where each rank runs, and how the ranks are distributed over nodes and cores."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from msgspec import Struct

from perfkit.accelerators import device_types
from perfkit.base.system_limits import count_cores
from perfkit.record.distributed.launcher_env import RankInfo
from perfkit.record.distributed.rank_group import ProcessRankGroup, backend_of
from perfkit.records.manifest import World


class Topology(Struct, frozen=True, kw_only=True):
    """Where this rank runs, and how all ranks are distributed over nodes."""

    device: str
    """As torch names it: cpu, cuda:1."""
    device_name: str
    backend: str | None
    host: str
    threads: int
    node_cores: int | None
    """Number of cores that the ranks of this node may run on, in total; None if unknown."""
    local_rank: int
    node_rank: int
    world: World


def discover_topology(ranks: ProcessRankGroup, info: RankInfo, device: torch.device, threads: int | None) -> Topology:
    """Find out where all ranks run, and set the number of threads of this one; called by every rank.

    Args:
        threads: CPU threads to use; None divides the cores evenly.
    """
    host = socket.gethostname()
    node = host if info.node_rank is None else str(info.node_rank)
    cores = own_cores()
    gathered = ranks.all_gather((node, cores))
    nodes = list(dict.fromkeys(name for name, _ in gathered))
    neighbours = [other for name, other in gathered if name == node]
    torch.set_num_threads(threads or threads_per_rank(cores, neighbours, count_cores()))
    return Topology(
        device=str(device),
        device_name=name_device(device),
        backend=backend_of(device.type),
        host=host,
        threads=torch.get_num_threads(),
        node_cores=len(frozenset().union(*neighbours)),
        local_rank=info.local_rank,
        node_rank=nodes.index(node),
        world=World(
            world_size=ranks.world_size,
            nodes=len(nodes),
            launcher=info.launcher,
            local_world_sizes=[sum(name == node for name, _ in gathered) for node in nodes],
        ),
    )


def own_cores() -> frozenset[int]:
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def threads_per_rank(cores: frozenset[int], neighbours: list[frozenset[int]], most: int) -> int:
    """Return the number of threads for a rank on `cores`: an equal share of them.

    Args:
        neighbours: The cores of every rank of the node, this one included. Ranks that the launcher has bound to
            different cores do not share any.
        most: How many this rank may use at once: a container may allow fewer than it shows.
    """
    sharing = sum(bool(cores & other) for other in neighbours)
    return max(1, min(len(cores), most) // max(1, sharing))


def name_device(device: torch.device) -> str:
    """Return the model name of a device; for the CPU that of the processor."""
    if device.type != "cpu":
        return str(torch.get_device_module(device.type).get_device_name(device))
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else os.uname().machine


def device_in_use() -> torch.device:
    """Return the accelerator that this process has begun to use, else the CPU.

    It asks only what is initialised: to ask what is available can initialise a driver, which then fails in a fork.
    """
    for kind in device_types():
        module = getattr(torch, kind, None)
        if module is not None and module.is_initialized():
            return torch.device(kind, module.current_device())
    return torch.device("cpu")


T = TypeVar("T")


def prepare_on_nodes(ranks: ProcessRankGroup, topology: Topology, prepare: Callable[[], list[T]]) -> list[T]:
    """Call `prepare` first on rank 0, then on one rank of every other node; return what it returned on this node.

    If the nodes share the folder, the other nodes find rank 0's files and use them.
    """
    first = ranks.run_on(ranks.rank == 0, prepare)
    other = ranks.run_on(topology.local_rank == 0 and topology.node_rank > 0, prepare)
    own = topology.node_rank, first or other
    return next((made for node, made in ranks.all_gather(own) if made and node == own[0]), [])
