"""Steps of simulated devices last as long as the simulation, however far the host runs ahead on other streams."""

from pathlib import Path

import pytest

import perfkit
from perfkit.records.run import RunReport
from tests.support.clusters.cluster import Cluster, Faults, simulate
from tests.support.clusters.programs import Model

MS = 1_000_000
MESHES = {"ddp": {"dp": 2}, "fsdp": {"shard": 2}, "tp": {"dp": 1, "tp": 2}}


def run_of(folder: Path, cluster: Cluster) -> tuple[RunReport, float]:
    step_us = simulate(cluster, folder)
    (run,) = perfkit.analyze(folder).runs
    return run, step_us / 1000


def cluster(program: str, prefetch_us: int) -> Cluster:
    mesh = MESHES[program]
    return Cluster(program, mesh, Model(4, 4, 300, dict.fromkeys(mesh, 900)), prefetch_us=prefetch_us, steps=6)


@pytest.mark.parametrize("prefetch_us", [0, 300, 6_000])
@pytest.mark.parametrize("program", MESHES)
def test_what_another_stream_prefetches_begins_no_step(tmp_path: Path, program: str, prefetch_us: int) -> None:
    run, step_ms = run_of(tmp_path, cluster(program, prefetch_us))
    for rank in run.ranks:
        # Without a step before, the first contains the first transfer.
        assert [step.wall_ns / MS for step in rank.steps[1:]] == pytest.approx([step_ms] * 5, rel=0.02)


@pytest.mark.parametrize("prefetch_us", [0, 300])
def test_a_delay_counts_in_one_step(tmp_path: Path, prefetch_us: int) -> None:
    healthy = cluster("ddp", prefetch_us)
    delayed, _ = run_of(tmp_path, healthy._replace(faults=Faults(loads_us={1: [0, 0, 0, 80_000, 0, 0]})))
    usual_ms = simulate(healthy) / 1000
    for rank in delayed.ranks:
        longer = [step.step for step in rank.steps if step.wall_ns / MS > 1.5 * usual_ms]
        assert len(longer) == 1
    across = delayed.cross_rank
    assert across is not None
    assert {one.rank for one in across.one_off_stragglers} <= {1}
    assert across.stragglers == []
