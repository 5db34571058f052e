"""Real meshes of 8 gloo ranks, dp x tp x pp: the rank that is held back is named, and every collective's dimension.

Ranks wait for each other at several places of a step, so a delay shows on all of them: only one is its origin.
"""

from pathlib import Path

import pytest

import perfkit
from perfkit.records.run import RunReport
from tests.support.processes.launching import in_real_time, record_forked

RANKS, MS = 8, 1_000_000
MESH = {"pp": 2, "dp": 2, "tp": 2}
SIZES = {"layers": 2, "width": 32, "heads": 2, "block": 16, "batch-size": 8, "vocab-size": 64, "samples": 512}
DELAY_MS = 100
"""A fifth of a step, or more on a fast machine."""

# Cause of reruns: other programs on the machine change wall times.
pytestmark = [pytest.mark.slow, pytest.mark.timing, pytest.mark.flaky(reruns=2)]


def record(folder: Path, *cases: list[str]) -> list[RunReport]:
    sizes = [f"--{name}={value}" for name, value in SIZES.items()]
    mesh = ",".join(f"{name}={size}" for name, size in MESH.items())
    whole = ["gpt", *sizes, "--mesh", mesh, "--threads", "1", "--steps", "9", "--schedule", "wait=1,warmup=2,active=6"]
    texts = {f"case{number}": " ".join([*whole, *case]) for number, case in enumerate(cases)}
    record_forked(folder, RANKS, texts, before=in_real_time())  # eight ranks share two cores
    return perfkit.analyze(folder).runs


def test_the_origin_of_a_delay_is_named_and_not_those_that_wait(tmp_path: Path) -> None:
    quiet, delayed = record(tmp_path, [], ["--inject", f"rank=6,phase=backward,delay={DELAY_MS}ms"])
    assert quiet.cross_rank is not None
    assert all(row.lag_ns < DELAY_MS * MS / 2 for row in quiet.cross_rank.stragglers)
    assert delayed.cross_rank is not None
    (row,) = delayed.cross_rank.stragglers  # test_stages has a late rank at every position
    assert (row.rank, row.category) == (6, "overhead")
    assert row.lag_ns == pytest.approx(DELAY_MS * MS, rel=0.25)
    assert row.phase in ("backward", None)
    for run in (quiet, delayed):
        check_dimensions(run)


def check_dimensions(run: RunReport) -> None:
    """Every collective has its dimension, and their parts add up to the run's, to the nanosecond."""
    summary, whole = run.dimensions, run.efficiency
    assert summary is not None
    assert whole is not None
    assert {row.dimension: (row.group_size, row.groups, row.across_hosts) for row in summary.rows} == {
        name: (size, RANKS // size, False) for name, size in MESH.items()
    }
    assert sum(row.exposed_wait_ns for row in summary.rows) == whole.wait_ns
    assert sum(row.exposed_transfer_ns for row in summary.rows) + summary.outside_ns == whole.transfer_ns
    lost = sum(row.serialisation_lost_ns + row.transfer_lost_ns for row in summary.rows)
    assert lost + summary.outside_lost_ns == whole.t_ns - whole.own_ns
