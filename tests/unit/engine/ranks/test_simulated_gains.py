"""What each delay costs is what a simulated cluster gains without it, also beside another one."""

from pathlib import Path
from typing import Any

import pytest

import perfkit
from perfkit.records.run import RunReport
from tests.support.clusters.cluster import Cluster, Faults, simulate
from tests.support.clusters.programs import Model

STEPS, ODD = 10, 6
MESHES = {"ddp": {"dp": 4}, "fsdp": {"shard": 4}, "tp": {"dp": 2, "tp": 2}}


def cluster(program: str, **faults: Any) -> Cluster:
    mesh = MESHES[program]
    model = Model(8, 4, 150, dict.fromkeys(mesh, 1000), is_synchronised=True)
    return Cluster(program, mesh, model, Faults(**faults), per_host=2, steps=STEPS)


def odd(rank: int, us: int) -> dict[str, Any]:
    return {"loads_us": {rank: [us * (step == ODD) for step in range(STEPS)]}}


def analyzed(folder: Path, cluster: Cluster) -> tuple[RunReport, float]:
    """Return the report of a cluster, and its step (ns)."""
    step_ns = 1000 * simulate(cluster, folder)
    (run,) = perfkit.analyze(folder).runs
    return run, step_ns


@pytest.mark.parametrize("program", MESHES)
@pytest.mark.parametrize(
    ("always", "other"),
    [
        ({"load_us": {1: 3000}}, odd(1, 30_000)),
        ({"load_us": {1: 3000}}, odd(1, 16_000)),
        ({"device": {1: 1.3}}, odd(1, 40_000)),
        ({"load_us": {1: 3000}}, odd(2, 30_000)),
    ],
    ids=["load", "smaller", "device", "two ranks"],
)
def test_a_rank_that_is_always_late_and_an_odd_step_have_each_its_own_price(
    tmp_path: Path, program: str, always: dict[str, Any], other: dict[str, Any]
) -> None:
    run, step_ns = analyzed(tmp_path, cluster(program, **always, **other))
    healthy_ns, without_ns = (1000 * simulate(cluster(program, **faults)) for faults in ({}, other))
    found, ledger = run.cross_rank, run.ledger
    assert found is not None
    assert ledger is not None
    assert [row.rank for row in found.stragglers] == [1]
    assert found.stragglers_gain_ns == pytest.approx(step_ns - without_ns, rel=0.1)
    assert found.one_off_gain_ns == pytest.approx(without_ns - healthy_ns, rel=0.1)
    rows = {row.late: row for row in ledger.rows if row.cause == "late_ranks"}
    assert {late: row.steps for late, row in rows.items()} == {"always": [], "once": [1 + ODD]}
    assert rows["always"].ns == found.stragglers_gain_ns
    assert rows["once"].ns == found.one_off_gain_ns
    assert sum(row.ns for row in rows.values()) == pytest.approx(step_ns - healthy_ns, rel=0.05)


@pytest.mark.parametrize("program", MESHES)
def test_an_odd_step_is_no_part_of_what_a_late_rank_costs_if_it_is_too_short_to_be_told(
    tmp_path: Path, program: str
) -> None:
    run, step_ns = analyzed(tmp_path, cluster(program, load_us={1: 1200}, **odd(1, 8_500)))
    without_ns = 1000 * simulate(cluster(program, **odd(1, 8_500)))
    found = run.cross_rank
    assert found is not None
    assert [(row.rank, row.steps_late) for row in found.stragglers] == [(1, STEPS)]
    assert found.stragglers_gain_ns == pytest.approx(step_ns - without_ns, rel=0.1)


def test_advice_has_both(tmp_path: Path) -> None:
    simulate(cluster("ddp", load_us={1: 3000}, **odd(2, 30_000)), tmp_path)
    report = perfkit.analyze(tmp_path)
    found = {one.rule: one.potential_saving_ns for one in report.insights}
    across = report.runs[0].cross_rank
    assert across is not None
    assert found["waiting"] == pytest.approx(across.stragglers_gain_ns)
    assert found["single_delays"] == pytest.approx(across.one_off_gain_ns)
