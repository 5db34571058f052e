"""Clusters in which a rank, or all of a host, is late for a known reason; and what an expert would say of it."""

import re
from collections.abc import Iterator, Mapping
from random import Random
from typing import Final, NamedTuple

from perfkit.records.aggregate import REPORTED_SHARE
from perfkit.records.run import RunReport
from perfkit.report.wording.ledger import takes
from tests.support.clusters.cluster import Cluster, Faults
from tests.support.clusters.programs import Model
from tests.support.clusters.rank import KernelFaults

MIX: Final = (("gemm", 0.5), ("layer_norm", 0.15), ("elementwise_add", 0.15), ("grouped_gemm", 0.2))
"""Kernels of a layer with their shares of its time."""
MEMORY_BOUND: Final = ("layer_norm", "elementwise", "adam", "copy")
OF_BATCH: Final = ("gemm", "layer_norm", "elementwise", "grouped_gemm")
_MESHES: Final[Mapping[str, Mapping[str, int]]] = {
    "ddp": {"dp": 4},
    "ddp-copies": {"dp": 8},
    "fsdp": {"shard": 4},
    "tp": {"dp": 2, "tp": 2},
}
_TRANSFERS_US: Final = {"dp": 1500, "shard": 300, "tp": 100}
SAID: Final[Mapping[str, str]] = {
    "clock": r"every kernel takes {times} times as long",
    "memory": r"memory-bound kernels take {times} times as long",
    "ragged": r"kernels have [\d.]+ times the blocks",
    "calls": r"[\d.]+ times as many kernels",
    "expert": r"grouped_gemm\S* (has {times} times the blocks|takes {times} times as long)",
    "host": r"each launch takes {times} times as long",
    "node": r"Host node1 delays .*every kernel takes {times} times as long",
    "collect": r"Host work on changing ranks delays each step by [^:]*: garbage collection",
}
"""The sentence, with the factor, by fault."""
ANY: Final = r"times (as|the)|changing ranks|Host node"
"""A part of each of them."""


class Case(NamedTuple):
    """A cluster, the same without its fault, and the sentence."""

    name: str
    cluster: Cluster
    twin: Cluster
    said: str | None
    """A regular expression; None where nothing is to be said."""


def told(run: RunReport) -> str:
    """Return what is told of a run: its headline, and the rows of its ledger from 1 % of the step on, in words."""
    rows = run.ledger.losses if run.ledger else ()
    return " ".join((run.verdict.sentence, *(takes(row) for row in rows if row.share >= REPORTED_SHARE)))


def cases(count: int, seed: int = 0) -> Iterator[Case]:
    """Yield cases, each fault and program in turn, with random sizes."""
    for number in range(count):
        random = Random(seed * 1_000_003 + number)  # noqa: S311
        fault = [*SAID, "loader"][number % (len(SAID) + 1)]
        yield _case(random, [*_MESHES][number // (len(SAID) + 1) % len(_MESHES)], fault)


def _case(random: Random, program: str, fault: str) -> Case:
    mesh = _MESHES[program]
    ranks = 1
    for size in mesh.values():
        ranks *= size
    kernels, kernel_us = random.choice([(8, 24), (6, 20)] if fault == "host" else [(4, 300), (8, 160), (2, 600)])
    model = Model(
        layers=4,
        kernels=kernels,
        kernel_us=kernel_us,
        transfer_us={name: _TRANSFERS_US[name] for name in mesh},
        is_synchronised=fault == "collect" or random.random() < 0.3,
        mix=MIX,
    )
    twin = Cluster(program, mesh, model, per_host=ranks // 2, steps=10 if fault == "collect" else 5)
    faults, times = _faults(random, fault, ranks)
    said = SAID[fault].format(times=times) if fault in SAID else None
    name = f"{program} {ranks} {fault} {kernels}x{kernel_us}us{' sync' * model.is_synchronised}"
    return Case(name, twin._replace(faults=faults), twin, said)


def _faults(random: Random, fault: str, ranks: int) -> tuple[Faults, str]:
    """Return a fault, and its factor as a regular expression that allows for an error of 3 %."""
    late = random.randrange(ranks)
    factor = random.choice([1.5, 2.0, 3.0])

    def of(names: tuple[str, ...], what: str, factor: float) -> Faults:
        factors = {what: dict.fromkeys(names, factor)}
        none = dict[str, float]()
        slower, larger, more = (factors.get(one, none) for one in ("slower", "larger", "more"))
        return Faults(kernels={late: KernelFaults(slower, larger, more)})

    if fault == "clock":
        factor = random.choice([1.1, 1.2, 1.5])
        return Faults(device={late: factor}), _near(factor)
    if fault == "node":
        factor = random.choice([1.1, 1.3])
        return Faults(device=dict.fromkeys(range(ranks // 2, ranks), factor)), _near(factor)
    if fault == "memory":
        return of(MEMORY_BOUND, "slower", factor), _near(factor)
    if fault == "ragged":
        return of(OF_BATCH, "larger", random.choice([1.15, 1.3, 1.6])), ""
    if fault == "calls":
        return of(OF_BATCH, "more", random.choice([1.25, 1.5])), ""
    if fault == "expert":
        return of(("grouped_gemm",), random.choice(["larger", "slower"]), factor), _near(factor)
    if fault == "host":
        return Faults(host={late: 2 * factor}), _near(2 * factor)
    if fault == "loader":  # less than what the host is ahead, or else it is the loader that is named
        return Faults(load_us={late: 3_000}), ""
    return Faults(collect_us=random.choice([5_000, 15_000])), ""


def _near(factor: float) -> str:
    values = sorted({f"{factor * (1 + thousandth / 1000):.3g}" for thousandth in range(-30, 31)})
    return f"({'|'.join(map(re.escape, values))})"
