"""What is slow about a simulated network is named, with its price; a healthy one has nothing that is slow."""

from pathlib import Path

import numpy as np
import pytest
from numpy.random import Generator

import perfkit
from perfkit.engine.communication.slow_network import find_in_all_steps, find_in_steps
from perfkit.engine.communication.transfers import Transfers, Unit
from perfkit.pipeline.summarize import Options
from perfkit.pipeline.whatif import _load
from perfkit.records.cross_rank import CrossRankSummary
from perfkit.report.wording.ledger import places
from tests.benchmarks.bench_network import result
from tests.support.clusters.cluster import Cluster, Faults, simulate
from tests.support.clusters.networks import networks
from tests.support.clusters.programs import Model

NETWORKS = dict(enumerate(networks(46, seed=3)))
SMALL = [
    number for number, one in NETWORKS.items() if "16" not in one.name and number % 23 in (1, 2, 6, 9, 12, 14, 16, 21)
]


@pytest.mark.parametrize("number", SMALL, ids=lambda number: NETWORKS[number].name)
def test_what_is_slow_is_named_with_its_price_and_nothing_without_it(number: int) -> None:
    found = result(NETWORKS[number])
    assert found.named or NETWORKS[number].cluster.jitter > 0.1, found.text
    assert not found.named or found.ratio_error < 0.25, found.text
    assert not found.named or found.true < 0.05 or found.gain_error < 0.2, found.text
    assert found.false == 0, found.text


def compared(folder: Path, cluster: Cluster) -> CrossRankSummary:
    simulate(cluster, folder)
    report, _, _ = _load(folder, Options(), None)
    assert report.cross_rank is not None
    return report.cross_rank


@pytest.mark.parametrize(
    "faults",
    [Faults(device={3: 1.5}), Faults(load_us={3: 15_000}), Faults(work_us={3: 15_000}), Faults(host={3: 10.0})],
    ids=["device", "load", "work", "host"],
)
def test_a_late_rank_is_no_slow_network(tmp_path: Path, faults: Faults) -> None:
    mesh, model = {"replicate": 2, "shard": 4}, Model(4, 4, 100, {"replicate": 900, "shard": 700})
    found = compared(tmp_path, Cluster("hsdp", mesh, model, faults, per_host=2, jitter=0.1, unequal=0.05))
    assert found.slow_transfers == []


def test_a_late_rank_is_named_beside_a_slow_network(tmp_path: Path) -> None:
    mesh = {"replicate": 2, "shard": 4}
    model = Model(4, 2, 400, {"replicate": 1200, "shard": 900}, is_synchronised=True)
    faults = Faults(hosts={2: 2.5}, load_us={5: 30_000})
    found = compared(tmp_path, Cluster("hsdp", mesh, model, faults, per_host=2, jitter=0.03))
    assert [row.rank for row in found.stragglers] == [5]
    assert [one.hosts for one in found.slow_transfers] == [["node2"]]


def test_a_rank_of_one_host_has_no_network_card(tmp_path: Path) -> None:
    model = Model(4, 2, 200, {"dp": 2000, "tp": 400})
    healthy = Cluster("tp", {"dp": 4, "tp": 2}, model, per_host=8, jitter=0.05, unequal=0.05)
    assert compared(tmp_path / "healthy", healthy).slow_transfers == []
    slow = compared(tmp_path / "slow", healthy._replace(faults=Faults(links={(4, 5): 2.5}, congested={3: 4.0})))
    assert [one.ranks for one in slow.slow_transfers] == [[4, 5]]


def test_each_cause_has_its_own_price(tmp_path: Path) -> None:
    model = Model(4, 2, 200, {"dp": 8000, "tp": 400}, is_synchronised=True)
    both = Cluster("tp", {"dp": 4, "tp": 2}, model, per_host=4, jitter=0.02, steps=10)
    link, congested = Faults(links={(2, 3): 3.0}), Faults(congested={3: 3.0, 7: 3.0})
    step_us = simulate(both._replace(faults=link._replace(congested=congested.congested)), tmp_path)
    report = perfkit.analyze(tmp_path)
    (run,) = report.runs
    assert run.cross_rank is not None
    assert run.ledger is not None
    true_us = {
        (): step_us - simulate(both._replace(faults=congested)),
        (3, 7): step_us - simulate(both._replace(faults=link)),
    }
    assert {tuple(one.steps): (one.gain_ns or 0) / 1000 for one in run.cross_rank.slow_transfers} == pytest.approx(
        true_us, rel=0.05
    )
    rows = [row for row in run.ledger.rows if row.slow]
    assert [(row.slow.ranks, row.steps) for row in rows if row.slow] == [([2, 3], []), ([], [3, 7])]
    all_us = step_us - simulate(both)
    assert sum(row.ns for row in rows) == pytest.approx(1000 * all_us, rel=0.02)
    assert run.cross_rank.slow_transfers_gain_ns == pytest.approx(1000 * all_us, rel=0.02)
    assert [places(row)[0] for row in rows] == ["ranks 2 and 3", "steps 3 and 7"]
    advice = {one.recommendation: one.potential_saving_ns for one in report.insights if one.rule == "slow_network"}
    assert advice == {
        "check the network cards and links of ranks 2 and 3": pytest.approx(rows[0].ns, rel=0.05),
        "find what else uses the network in these steps: checkpoints, input, other jobs": pytest.approx(rows[1].ns),
    }


# ---- noise -----------------------------------------------------------------------------------------------------------


def made(random: Generator, *, groups: float, steps: float, calls: float, is_heavy: bool) -> Transfers:
    """Return healthy transfers; groups, steps and calls vary by these standard deviations, or have heavy tails."""
    units, cells, count, hosts = (
        int(random.choice(sizes)) for sizes in ([1, 2, 4, 8], [1, 2, 8], [3, 5, 10], [1, 2, 3])
    )

    def draw(size: int, deviation: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        values = random.standard_t(3, size) if is_heavy else random.normal(0, 1, size)
        return np.asarray(values * deviation)

    unit, cell, step = (axis.ravel() for axis in np.indices((units, cells, count)))
    log_ns = 14 + random.normal(0, 1, cells)[cell] + draw(units, groups)[unit] + draw(count, steps)[step]
    members = [Unit((k, k + 8), frozenset({f"h{k % hosts}", f"h{(k + 1) % hosts}"})) for k in range(units)]
    return Transfers(log_ns + draw(len(unit), calls), cell, unit, step, np.arange(len(unit)), members)


@pytest.mark.parametrize(
    ("noise", "most"),
    [
        ({"groups": 0.1, "steps": 0.05, "calls": 0.1, "is_heavy": False}, 6),
        ({"groups": 0.05, "steps": 0.2, "calls": 0.3, "is_heavy": False}, 9),
        ({"groups": 0.05, "steps": 0.2, "calls": 0.3, "is_heavy": True}, 15),
    ],
    ids=["of devices", "of CPU ranks", "with heavy tails"],
)
def test_noise_is_hardly_ever_slow(noise: dict[str, float], most: int) -> None:
    random = np.random.default_rng(5)
    runs = [made(random, **noise) for _ in range(300)]  # type: ignore[arg-type]
    assert sum(any(True for _ in find_in_all_steps(run)) for run in runs) <= most
    assert sum(any(True for _ in find_in_steps(run)) for run in runs) <= most


@pytest.mark.parametrize("factor", [1.05, 2.0, 4.0])
def test_only_a_slow_group_is_slow_whatever_the_sizes(factor: float) -> None:
    quiet = {"groups": 0.02, "steps": 0.02, "calls": 0.02, "is_heavy": False}
    runs = [made(np.random.default_rng(seed), **quiet) for seed in range(60)]  # type: ignore[arg-type]
    for run in (one for one in runs if len(one.units) > 2):
        slow = run._replace(log_ns=run.log_ns + np.log(factor) * (run.unit == 1))
        causes = [cause for cause, _, _ in find_in_all_steps(slow)]
        assert [cause.ranks for cause in causes] == ([[1, 9]] if factor > 1.5 else [])
        assert all(cause.ratio == pytest.approx(factor, rel=0.1) for cause in causes)
