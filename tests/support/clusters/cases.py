"""Cases: a cluster, changes as `perfkit whatif` takes them, and the cluster after each, whose step is the truth."""

from collections.abc import Iterator, Mapping
from random import Random
from typing import Final, NamedTuple

from tests.support.clusters.cluster import Cluster, Faults
from tests.support.clusters.programs import Model

_MESHES: Final[Mapping[str, tuple[Mapping[str, int], ...]]] = {
    "ddp": ({"dp": 4}, {"dp": 8}),
    "ddp-copies": ({"dp": 4}, {"dp": 8}),
    "fsdp": ({"shard": 4}, {"shard": 8}),
    "tp": ({"dp": 2, "tp": 2}, {"dp": 2, "tp": 4}),
    "pp": ({"dp": 1, "pp": 4}, {"dp": 2, "pp": 4}),
}
_TRANSFERS_US: Final[Mapping[str, tuple[int, ...]]] = {
    "dp": (1500, 4000, 9000),
    "shard": (500, 1500, 3000),
    "tp": (100, 300, 800),
    "pp": (100, 400, 1200),
}
_FAULTS: Final = ("none", "device", "host", "load", "work", "input")


class Case(NamedTuple):
    """A cluster and what could be changed about it."""

    name: str
    cluster: Cluster
    changes: Mapping[str, Cluster]
    """The changed cluster by change."""


def cases(count: int, seed: int = 0) -> Iterator[Case]:
    """Yield cases, each fault and program in turn, with random sizes."""
    for number in range(count):
        random = Random(seed * 1_000_003 + number)  # noqa: S311
        program = [*_MESHES][number % len(_MESHES)]
        yield _case(random, program, _FAULTS[number // len(_MESHES) % len(_FAULTS)])


def _case(random: Random, program: str, fault: str) -> Case:
    mesh = random.choice(_MESHES[program])
    kernels, kernel_us = random.choice([(4, 300), (8, 80), (16, 30), (20, 12)])
    model = Model(
        kernels=kernels,
        kernel_us=kernel_us,
        transfer_us={name: random.choice(_TRANSFERS_US[name]) for name in mesh},
        is_synchronised=random.random() < 0.4,
    )
    size = 1
    for ranks in mesh.values():
        size *= ranks
    late = random.randrange(size)
    cluster = Cluster(program, mesh, model, per_host=random.choice([4, 8]))
    if fault == "input":
        cluster = cluster._replace(load_us=random.choice([8_000, 20_000, 60_000]))
    healthy = cluster
    if fault not in ("none", "input"):
        cluster = cluster._replace(faults=_faults(random, fault, late))
    changes = {f"rank{late}=healthy": healthy} if healthy is not cluster else {}
    for name, ranks in mesh.items():
        if ranks > 1:
            free = model._replace(transfer_us={**model.transfer_us, name: 0})
            changes[f"collective[{name}]=0"] = cluster._replace(model=free)
    if fault == "input":
        changes["input=0"] = cluster._replace(load_us=0)
    name = f"{program} {'x'.join(map(str, mesh.values()))} {fault} {kernels}x{kernel_us}us"
    return Case(name + (" sync" if model.is_synchronised else ""), cluster, changes)


def _faults(random: Random, fault: str, late: int) -> Faults:
    if fault == "device":
        return Faults(device={late: random.uniform(1.1, 1.8)})
    if fault == "host":
        return Faults(host={late: random.uniform(2.0, 8.0)})
    if fault == "load":
        return Faults(load_us={late: random.choice([5_000, 15_000, 50_000])})
    return Faults(work_us={late: random.choice([5_000, 20_000])})
