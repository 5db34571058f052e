"""Clusters: what they run and which faults they have; simulated, and written as traces."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import exp
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from tests.support.clusters.events import Process, World
from tests.support.clusters.programs import PROGRAMS, Model
from tests.support.clusters.rank import Group, KernelFaults, Meeting, Network, Rank

_PREFETCH = 40


class Faults(NamedTuple):
    """What is wrong with some ranks."""

    device: Mapping[int, float] = {}
    """Factor of the time of each kernel."""
    host: Mapping[int, float] = {}
    """Factor of the time of all that the host does."""
    load_us: Mapping[int, int] = {}
    """Additional loading in each step."""
    loads_us: Mapping[int, Sequence[int]] = {}
    """The same in each step of the recording by itself."""
    work_us: Mapping[int, int] = {}
    """Work of the host at the end of each step, as checkpoints, for which it waits for the device."""
    kernels: Mapping[int, KernelFaults] = {}
    """Faults of some kernels."""
    collect_us: int = 0
    """Python function that another rank, drawn by chance, runs in each step."""
    hosts: Mapping[int, float] = {}
    """Factor of the transfers that leave or enter a host."""
    pairs: Mapping[tuple[int, int], float] = {}
    """Factor of the transfers among members that include both hosts."""
    cards: Mapping[int, float] = {}
    """Factor of the transfers of a rank with other hosts."""
    links: Mapping[tuple[int, int], float] = {}
    """Factor of the transfers of a group of these two ranks."""
    congested: Mapping[int, float] = {}
    """Factor of all transfers between hosts in a step."""


class Cluster(NamedTuple):
    """A run."""

    program: str
    mesh: Mapping[str, int]
    """Size of each dimension; the last varies fastest."""
    model: Model
    faults: Faults = Faults()
    load_us: int = 50
    per_host: int = 8
    clock_us: int = 3000
    """By how much the clock of each host is ahead of the one before."""
    prefetch_us: int = 0
    """Time of a kernel that prepares the next batch on a stream of its own, as each step begins."""
    queue: int = 1024
    steps: int = 5
    warm: int = 1
    """Steps before the recording."""
    jitter: float = 0.0
    """Standard deviation of the logarithm of the time of each transfer."""
    unequal: float = 0.0
    """The same of how much a group's transfers take longer than another's in all steps."""
    seed: int = 0

    def slowdown(self, members: tuple[int, ...], step: int | None = None) -> float:
        """Return how many times as long transfers among some ranks take in a step."""
        faults, hosts = self.faults, {member // self.per_host for member in members}
        slow = [one for link, one in faults.links.items() if link == members]
        if len(hosts) > 1:
            slow += [one for host, one in faults.hosts.items() if host in hosts]
            slow += [one for pair, one in faults.pairs.items() if hosts.issuperset(pair)]
            slow += [one for rank, one in faults.cards.items() if rank in members]
            slow += [one for congested, one in faults.congested.items() if congested == step]
        return max(slow, default=1.0)


def simulate(cluster: Cluster, folder: Path | None = None) -> float:
    """Return how long a recorded step takes (us), from when all ranks have begun the first one; and write traces.

    The recording begins when the device is done with what was launched before, and ends when it is done with all.
    """
    world, size = World(), int(np.prod(list(cluster.mesh.values())))
    meetings: dict[Any, Meeting] = {}
    network = _network(cluster)
    ranks = [_rank(world, cluster, number, size, meetings, network) for number in range(size)]
    for rank, groups in zip(ranks, _groups(cluster.mesh), strict=True):
        world.start(_train(rank, cluster, groups), after=37 * rank.number)
    world.run()
    begun = max(rank.begun_us for rank in ranks)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for rank in ranks:
            rank.trace.write(folder / f"rank{rank.number}.json")
    return (world.now - begun) / cluster.steps


def _network(cluster: Cluster) -> Network:
    """Return the network: what varies is drawn for each group and call, so that it is the same without a fault."""

    def takes_us(members: tuple[int, ...], step: int, us: int, call: object) -> int:
        of_group, of_call = (Random(f"{cluster.seed} {one}").gauss(0, 1) for one in (members, call))  # noqa: S311
        varies = exp(of_group * cluster.unequal + of_call * cluster.jitter)
        return round(us * varies * cluster.slowdown(members, step))

    return takes_us


def _rank(
    world: World, cluster: Cluster, number: int, size: int, meetings: dict[Any, Meeting], network: Network
) -> Rank:
    host, faults = number // cluster.per_host, cluster.faults
    return Rank(
        world,
        number,
        size,
        host=f"node{host}",
        clock_us=10_000 + host * cluster.clock_us,
        device_factor=faults.device.get(number, 1.0),
        host_factor=faults.host.get(number, 1.0),
        kernel_faults=faults.kernels.get(number, KernelFaults()),
        queue=cluster.queue,
        meetings=meetings,
        network=network,
    )


def _train(rank: Rank, cluster: Cluster, groups: Mapping[str, Group]) -> Process:
    faults = cluster.faults
    for step in range(cluster.warm + cluster.steps):
        if step == cluster.warm:
            yield from rank.synchronise("cudaDeviceSynchronize", operator=None)
            rank.recording, rank.begun_us = True, rank.world.now
        begin, rank.train_step = rank.here, step
        recorded = step - cluster.warm
        extra_us = faults.loads_us[rank.number][recorded] if recorded >= 0 and rank.number in faults.loads_us else 0
        yield from rank.load(cluster.load_us + faults.load_us.get(rank.number, 0) + extra_us)
        if cluster.prefetch_us:
            yield from rank.kernel(cluster.prefetch_us, "normalize", stream=_PREFETCH)
        if faults.collect_us and Random(step).randrange(rank.world_size) == rank.number:  # noqa: S311
            yield from rank.work(faults.collect_us, "<built-in function collect>")
        yield from PROGRAMS[cluster.program](rank, cluster.model, groups)
        if rank.number in faults.work_us:
            yield from rank.synchronise()
            yield from rank.work(faults.work_us[rank.number], "train.py(7): save")
        if rank.recording:
            rank.trace.step(step, begin, rank.here - begin)
        yield 5
    yield from rank.synchronise("cudaDeviceSynchronize", operator=None)


def _groups(mesh: Mapping[str, int]) -> Iterator[dict[str, Group]]:
    """Yield each rank's groups by dimension."""
    grid = np.arange(int(np.prod(list(mesh.values())))).reshape(*mesh.values())
    for rank in range(grid.size):
        place: list[Any] = [int(axis[0]) for axis in np.nonzero(grid == rank)]
        groups = {}
        for axis, name in enumerate(mesh):
            index = [*place[:axis], slice(None), *place[axis + 1 :]]
            members = tuple(grid[tuple(index)].ravel().tolist())
            groups[name] = Group(f"{name}{members[0]}", f"mesh_{name}", members)
        yield groups


def members(cluster: Cluster) -> set[tuple[int, ...]]:
    """Return between whom there are transfers."""
    groups = [(name, group.ranks) for of_rank in _groups(cluster.mesh) for name, group in of_rank.items()]
    messages = {pair for name, ranks in groups for pair in pairwise(ranks) if name == "pp"}
    return messages | {ranks for name, ranks in groups if name != "pp" and len(ranks) > 1}
