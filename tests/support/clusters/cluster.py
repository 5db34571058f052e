"""Clusters: what they run and which faults they have; simulated, and written as traces."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np

from tests.support.clusters.events import Process, World
from tests.support.clusters.programs import PROGRAMS, Model
from tests.support.clusters.rank import Group, KernelFaults, Meeting, Rank

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


def simulate(cluster: Cluster, folder: Path | None = None) -> float:
    """Return how long a recorded step takes (us), from when all ranks have begun the first one; and write traces.

    The recording begins when the device is done with what was launched before, and ends when it is done with all.
    """
    world, size = World(), int(np.prod(list(cluster.mesh.values())))
    meetings: dict[Any, Meeting] = {}
    ranks = [_rank(world, cluster, number, size, meetings) for number in range(size)]
    for rank, groups in zip(ranks, _groups(cluster.mesh), strict=True):
        world.start(_train(rank, cluster, groups), after=37 * rank.number)
    world.run()
    begun = max(rank.begun_us for rank in ranks)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for rank in ranks:
            rank.trace.write(folder / f"rank{rank.number}.json")
    return (world.now - begun) / cluster.steps


def _rank(world: World, cluster: Cluster, number: int, size: int, meetings: dict[Any, Meeting]) -> Rank:
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
    )


def _train(rank: Rank, cluster: Cluster, groups: Mapping[str, Group]) -> Process:
    faults = cluster.faults
    for step in range(cluster.warm + cluster.steps):
        if step == cluster.warm:
            yield from rank.synchronise("cudaDeviceSynchronize", operator=None)
            rank.recording, rank.begun_us = True, rank.world.now
        begin = rank.here
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
