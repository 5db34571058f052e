"""Of simulated clusters whose ranks are late for a known reason, the reason is told; of the same without it, none."""

import re
from pathlib import Path

import pytest

import perfkit
from perfkit.records.run import RunReport
from tests.support.clusters.cluster import Cluster, simulate
from tests.support.clusters.device_faults import ANY, SAID, Case, cases, told

CASES = list(cases(2 * (len(SAID) + 1)))
"""Each fault in data-parallel training on 4 ranks, and on 8 ranks with copies out of buckets."""


def analyzed(cluster: Cluster, folder: Path) -> RunReport:
    simulate(cluster, folder)
    (run,) = perfkit.analyze(folder).runs
    return run


@pytest.mark.parametrize("case", CASES[: len(SAID) + 1], ids=lambda case: case.name.split()[2])
def test_the_reason_is_told_and_no_other(tmp_path: Path, case: Case) -> None:
    found = told(analyzed(case.cluster, tmp_path))
    if case.said is None:
        assert not re.search(ANY, found)
        return
    assert re.search(case.said, found), found
    assert not re.search(ANY, re.sub(case.said, "", found)), found


@pytest.mark.parametrize("case", CASES[::5], ids=lambda case: case.name.split()[2])
def test_nothing_is_told_of_healthy_ranks(tmp_path: Path, case: Case) -> None:
    run = analyzed(case.twin, tmp_path)
    assert not re.search(ANY, told(run))
    assert run.cross_rank is not None
    assert all(row.work is None for row in run.cross_rank.stragglers)


def test_the_advice_is_that_of_the_reason(tmp_path: Path) -> None:
    by_fault = {case.name.split()[2]: case for case in CASES[: len(SAID) + 1]}
    for fault, advice in {"clock": "CLOCK,PERFORMANCE", "memory": "ECC", "node": "ranks 2 and 3: nvidia-smi"}.items():
        simulate(by_fault[fault].cluster, tmp_path / fault)
        found = perfkit.analyze(tmp_path / fault).insights
        assert any(advice in one.recommendation for one in found), fault
