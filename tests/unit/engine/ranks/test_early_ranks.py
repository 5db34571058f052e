"""Ranks that have less to do than the others; and silence where chance, another pattern or two ranks explain it."""

import numpy as np
import pytest

from perfkit.engine.ranks.early_ranks import find_early_ranks
from perfkit.engine.ranks.lateness import OwnTimes
from perfkit.engine.ranks.stragglers import find_stragglers
from perfkit.records.common import Category
from tests.unit.engine.ranks.test_stragglers import MS, Cells, late, noise, times_of


def waiting(late_ns: Cells, category: Category = "compute", noise_ns: Cells | None = None) -> OwnTimes:
    """Return ranks of which the early ones wait in matched collectives (of 1 ms) for the last."""
    times = times_of(late_ns, category, noise_ns)
    return times._replace(waits_ns=times.of("communication") - MS)


def test_an_early_rank_is_named_with_its_size() -> None:
    (row,) = find_early_ranks(waiting(late(4, 10, r0=12, r1=12, r3=12), noise_ns=noise(4, 10)), [])
    assert row.rank == 2
    assert row.lead_ns == pytest.approx(12 * MS, rel=0.1)


@pytest.mark.parametrize("category", ["data_loading", "overhead"])
def test_idle_time_and_loading_are_not_compared(category: Category) -> None:
    assert find_early_ranks(waiting(late(4, 10, r0=12, r1=12, r3=12), category, noise(4, 10)), []) == []


def test_the_largest_lead_is_first() -> None:
    times = waiting(late(5, 10, r0=20, r1=20, r2=20, r4=8), noise_ns=noise(5, 10))
    assert [row.rank for row in find_early_ranks(times, [])] == [3, 4]


def test_a_late_rank_hides_no_early_one() -> None:
    times = waiting(late(5, 10, r0=20, r1=20, r2=20, r4=29), noise_ns=noise(5, 10))
    found = find_stragglers(times).ranks
    assert [row.rank for row in found] == [4]
    (row,) = find_early_ranks(times, found)
    assert row.rank == 3
    assert row.lead_ns == pytest.approx(20 * MS, rel=0.1)


def test_ranks_that_are_in_time_are_not_early_beside_late_ones() -> None:
    times = waiting(late(6, 10, r0=20, r1=30, r2=40), noise_ns=noise(6, 10))
    found = find_stragglers(times).ranks
    assert {row.rank for row in found} == {0, 1, 2}
    assert find_early_ranks(times, found) == []


def test_of_two_ranks_none_is_early() -> None:
    assert find_early_ranks(waiting(late(2, 10, r0=20)), []) == []


def test_two_steps_are_no_evidence() -> None:
    assert find_early_ranks(waiting(late(4, 2, r0=20, r1=20, r2=20)), []) == []


def test_a_rank_that_communicates_for_longer_and_does_not_wait_is_not_early() -> None:
    times = waiting(late(4, 10, r0=20, r1=20, r2=20))
    assert times.waits_ns is not None
    assert find_early_ranks(times, [])
    assert find_early_ranks(times._replace(waits_ns=times.waits_ns // 2), []) == []
    assert find_early_ranks(times._replace(waits_ns=None), []) == []


def test_a_rank_that_leaves_out_one_step_is_not_early() -> None:
    cells = late(4, 10, r0=20, r1=20, r2=20, r3=20)
    cells[3, 4] = 0
    assert find_early_ranks(waiting(cells, noise_ns=noise(4, 10)), []) == []


@pytest.mark.parametrize(("ranks", "steps"), [(3, 3), (4, 10), (16, 5)])
@pytest.mark.parametrize("shape", ["normal", "heavy", "exponential"])
def test_chance_makes_no_rank_early(ranks: int, steps: int, shape: str) -> None:
    runs, named = 50, 0
    for seed in range(runs):
        random = np.random.default_rng((seed, ranks, steps))
        cells = {
            "normal": random.normal(0, 8, (ranks, steps)),
            "heavy": 3 * random.standard_t(2, (ranks, steps)),
            "exponential": random.exponential(15, (ranks, steps)),
        }[shape]
        named += bool(find_early_ranks(waiting(late(ranks, steps), noise_ns=(cells * MS).astype(np.int64)), []))
    assert named <= 0.06 * runs
