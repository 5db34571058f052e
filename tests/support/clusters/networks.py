"""Clusters with a slow network, with what is slow about it, and healthy ones."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Final, NamedTuple

from tests.support.clusters.cluster import Cluster, Faults
from tests.support.clusters.programs import Model

_TRANSFERS_US: Final = {"dp": 3000, "shard": 900, "replicate": 1200, "tp": 400, "pp": 800, "ep": 700}
Make = Callable[[Random, Cluster, int], Faults]


class Network(NamedTuple):
    """A cluster, and what a fault of its network would be."""

    name: str
    cluster: Cluster
    healthy: Cluster


def _host(random: Random, cluster: Cluster, hosts: int) -> Faults:
    return Faults(hosts={random.randrange(hosts): random.uniform(1.5, 4)})


def _pair(random: Random, cluster: Cluster, hosts: int) -> Faults:
    first = random.choice([0, 1])
    return Faults(pairs={(first, first + 2): random.uniform(1.5, 4)})


def _card(random: Random, cluster: Cluster, hosts: int) -> Faults:
    return Faults(cards={random.randrange(hosts * cluster.per_host): random.uniform(1.5, 4)})


def _link(random: Random, cluster: Cluster, hosts: int) -> Faults:
    first = 2 * random.randrange(hosts * cluster.per_host // 2)
    return Faults(links={(first, first + 1): random.uniform(1.5, 4)})


def _congested(random: Random, cluster: Cluster, hosts: int) -> Faults:
    recorded = range(cluster.warm, cluster.warm + cluster.steps)
    return Faults(congested=dict.fromkeys(random.sample(recorded, random.choice([1, 2])), random.uniform(2, 4)))


_FAULTS: Final[dict[str, tuple[Make, tuple[tuple[str, dict[str, int], int], ...]]]] = {
    "host": (
        _host,
        (
            ("hsdp", {"replicate": 2, "shard": 8}, 4),
            ("tp", {"dp": 2, "tp": 8}, 4),
            ("pp", {"dp": 2, "pp": 4}, 2),
            ("pp", {"dp": 1, "pp": 8}, 2),
            ("hsdp", {"replicate": 2, "shard": 16}, 8),
        ),
    ),
    "pair": (_pair, (("hsdp", {"replicate": 2, "shard": 8}, 4), ("pp", {"dp": 2, "pp": 4}, 2))),
    "card": (
        _card,
        (
            ("tp", {"dp": 4, "tp": 4}, 4),
            ("tp", {"dp": 2, "tp": 8}, 8),
            ("hsdp", {"replicate": 4, "shard": 4}, 4),
            ("hsdp", {"replicate": 2, "shard": 4}, 4),
            ("pp", {"dp": 4, "pp": 4}, 4),
        ),
    ),
    "link": (_link, (("tp", {"dp": 4, "tp": 2}, 4), ("tp", {"dp": 4, "tp": 2}, 8), ("pp", {"dp": 2, "pp": 4}, 4))),
    "congested": (
        _congested,
        (
            ("ddp", {"dp": 8}, 4),
            ("fsdp", {"shard": 8}, 4),
            ("fsdp1", {"shard": 8}, 4),
            ("experts", {"ep": 8}, 4),
            ("accumulated", {"dp": 4}, 2),
            ("tp", {"dp": 4, "tp": 2}, 4),
            ("pp", {"dp": 2, "pp": 4}, 4),
            ("hsdp", {"replicate": 2, "shard": 4}, 4),
        ),
    ),
}


def networks(count: int, seed: int = 0) -> Iterator[Network]:
    """Yield clusters with each fault in turn, of all programs and meshes in which data can tell it."""
    kinds = [(kind, make, *where) for kind, (make, meshes) in _FAULTS.items() for where in meshes]
    for number in range(count):
        random = Random(seed * 1_000_003 + number)  # noqa: S311
        kind, make, program, mesh, per_host = kinds[number % len(kinds)]
        healthy = _healthy(random, program, mesh, per_host)
        size = 1
        for ranks in mesh.values():
            size *= ranks
        faults = make(random, healthy, size // per_host)
        name = f"{kind} {program} {'x'.join(map(str, mesh.values()))}/{per_host}"
        yield Network(name, healthy._replace(faults=faults), healthy)


def _healthy(random: Random, program: str, mesh: dict[str, int], per_host: int) -> Cluster:
    scale = random.uniform(0.5, 2)
    model = Model(
        layers=random.choice([4, 8]),
        kernels=2,
        kernel_us=random.choice([100, 200]),
        transfer_us={name: round(scale * _TRANSFERS_US[name]) for name in mesh},
        micro_batches=6,
        sizes=random.choice([(1.0,), (0.2, 1.0, 1.0, 0.5)]),
    )
    return Cluster(
        program,
        mesh,
        model,
        per_host=per_host,
        steps=random.choice([5, 10]),
        jitter=random.choice([0.02, 0.05, 0.15]),
        unequal=random.choice([0.0, 0.03, 0.08]),
        seed=random.randrange(1_000_000),
    )
