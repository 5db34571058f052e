"""Who is late in simulated clusters of devices: also what hides behind transfers, against runs without the fault."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import perfkit
from perfkit.records.cross_rank import Straggler
from tests.support.clusters.cluster import Cluster, Faults, simulate
from tests.support.clusters.programs import Model

MS = 1_000_000
STEPS = 12
MESHES = {"ddp": {"dp": 4}, "fsdp": {"shard": 4}, "fsdp1": {"shard": 4}, "tp": {"dp": 2, "tp": 2}}


def late_in(folder: Path, cluster: Cluster) -> tuple[list[Straggler], float]:
    """Return the ranks that are late, and by how much the step is longer than without faults (ms)."""
    lost_us = simulate(cluster, folder) - simulate(cluster._replace(faults=Faults()))
    (run,) = perfkit.analyze(folder).runs
    assert run.cross_rank is not None
    return run.cross_rank.stragglers, lost_us / 1000


def cluster(program: str, *, transfer_us: int = 1000, kernels: tuple[int, int] = (4, 150), **faults: Any) -> Cluster:
    mesh = MESHES[program]
    # A host that runs ahead would make up for delays of its own.
    model = Model(8, *kernels, dict.fromkeys(mesh, transfer_us), is_synchronised="host" not in faults)
    return Cluster(program, mesh, model, Faults(**faults), per_host=2, steps=STEPS)


@pytest.mark.parametrize(("transfer_us", "slower"), [(3_000, 12), (3_000, 20), (1_000, 10), (5_000, 25)])
def test_a_slow_host_hides_behind_no_transfer(tmp_path: Path, transfer_us: int, slower: float) -> None:
    slow = cluster("fsdp", transfer_us=transfer_us, kernels=(20, 12), host={2: slower})
    (row,), lost_ms = late_in(tmp_path, slow)
    assert (row.rank, row.category) == (2, "overhead")
    assert row.lag_ns / MS == pytest.approx(lost_ms, rel=0.2)


@pytest.mark.parametrize("program", MESHES)
def test_nobody_is_late_in_a_healthy_cluster(tmp_path: Path, program: str) -> None:
    late, _ = late_in(tmp_path, cluster(program))
    assert late == []


@pytest.mark.parametrize("program", MESHES)
def test_two_slow_devices_have_each_its_own_lag(tmp_path: Path, program: str) -> None:
    factors = {1: 1.4, 2: 1.15}
    late, _ = late_in(tmp_path, cluster(program, transfer_us=50, device=factors))  # hardly hidden by what they compute
    computes_ms = 8 * 3 * 4 * 0.15
    assert {row.rank: row.lag_ns / MS for row in late} == pytest.approx(
        {rank: (factor - 1) * computes_ms for rank, factor in factors.items()}, rel=0.2
    )


@pytest.mark.parametrize("program", MESHES)
def test_a_loader_that_waits_irregularly(tmp_path: Path, program: str) -> None:
    waits_us = np.random.default_rng(2).integers(20_000, 90_000, STEPS).tolist()
    late, _ = late_in(tmp_path, cluster(program, loads_us={3: waits_us}))
    assert [(row.rank, row.category) for row in late] == [(3, "data_loading")]


@pytest.mark.parametrize(("program", "first"), [("ddp", 4), ("fsdp", 7), ("tp", 6)])
def test_a_loader_that_is_slow_from_a_step_on(tmp_path: Path, program: str, first: int) -> None:
    (row,), _ = late_in(tmp_path, cluster(program, loads_us={1: [0] * first + [60_000] * (STEPS - first)}))
    assert (row.rank, row.category, row.steps_late, row.last_step) == (1, "data_loading", STEPS - first, None)
    assert row.first_step == 1 + first
