"""Persistent and one-off stragglers, and noise."""

import numpy as np
import pytest
from numpy.typing import NDArray

from perfkit.analysis.cross_rank.matching import MatchedCollectives, match
from perfkit.analysis.cross_rank.stragglers import find_one_off_stragglers, find_straggler, step_delays
from perfkit.schema.common import Category
from perfkit.schema.cross_rank import OneOffStraggler, Straggler
from perfkit.schema.rank import RankReport
from tests.support.calls_builder import make_matched
from tests.support.report_builders import make_rank, make_step

MS = 1_000_000
STEPS = 20
EMPTY = dict.fromkeys(("compute", "memcpy", "data_loading", "overhead"), 0)


def noise(ranks: int = 4, ms: float = 0.3, steps: int = STEPS, seed: int = 3) -> NDArray[np.int64]:
    return np.random.default_rng(seed).integers(0, round(ms * MS), (ranks, steps)) + 2 * MS


def make_ranks(late_ns: NDArray[np.int64], category: Category = "compute") -> list[RankReport]:
    """Ranks whose time before the collective is the category's, and which wait for the last."""
    last = late_ns.max(axis=0)
    return [
        make_rank(
            rank,
            [
                make_step(step, **(EMPTY | {category: late, "communication": int(last[step]) - late + 1000}))
                for step, late in enumerate(own.tolist())
            ],
        )
        for rank, own in enumerate(late_ns)
    ]


def find(ranks: list[RankReport], matched: MatchedCollectives) -> tuple[Straggler | None, list[OneOffStraggler]]:
    found = step_delays(ranks, matched)
    assert found is not None
    straggler = find_straggler(found)
    return straggler, find_one_off_stragglers(found, straggler)


@pytest.mark.parametrize("category", ["compute", "data_loading", "overhead", "memcpy"])
def test_a_persistent_straggler_is_named_with_its_category(category: Category) -> None:
    late = noise()
    late[2] += 3 * MS
    straggler, steps = find(make_ranks(late, category), make_matched(late))
    assert straggler is not None
    assert (straggler.rank, straggler.evidence, straggler.category) == (2, "waiting", category)
    assert straggler.lag_ns == pytest.approx(3 * MS, abs=0.2 * MS)
    assert straggler.category_ns == pytest.approx(3 * MS, abs=0.2 * MS)
    assert (straggler.steps_last, straggler.steps) == (STEPS, STEPS)
    assert steps == []


def test_without_matches_own_time_identifies_the_straggler() -> None:
    late = noise()
    late[2] += 3 * MS
    straggler, _ = find(make_ranks(late), match({}))
    assert straggler is not None
    assert (straggler.rank, straggler.evidence) == (2, "own_time")
    assert straggler.lag_ns == pytest.approx(3 * MS, abs=0.2 * MS)


def test_noise_makes_no_straggler() -> None:
    for seed in range(200):
        late = noise(ms=2, seed=seed)
        assert find(make_ranks(late), make_matched(late)) == (None, [])


def test_a_one_off_delay_is_not_a_persistent_straggler() -> None:
    late = noise()
    late[3, 7] += 30 * MS
    straggler, steps = find(make_ranks(late, "data_loading"), make_matched(late))
    assert straggler is None
    (step,) = steps
    assert (step.rank, step.step, step.category) == (3, 7, "data_loading")
    assert step.lag_ns == pytest.approx(30 * MS, abs=0.5 * MS)


def test_both_are_told_apart() -> None:
    late = noise()
    late[2] += 3 * MS
    late[0, 11] += 40 * MS
    straggler, steps = find(make_ranks(late), make_matched(late))
    assert straggler is not None
    assert (straggler.rank, straggler.steps_last) == (2, STEPS - 1)
    assert [(step.rank, step.step) for step in steps] == [(0, 11)]


def test_start_skew_is_not_a_one_off_delay() -> None:
    late = noise()
    late[1, 0] += 500 * MS
    assert find(make_ranks(late), make_matched(late)) == (None, [])


def test_a_straggler_without_an_identified_cause() -> None:
    late = noise()
    late[2] += 3 * MS
    straggler, _ = find(make_ranks(noise()), make_matched(late))
    assert straggler is not None
    assert (straggler.rank, straggler.category) == (2, None)


def test_one_step_or_one_rank_has_no_straggler() -> None:
    late = noise(steps=1)
    assert step_delays(make_ranks(late), make_matched(late)) is None
    assert step_delays(make_ranks(noise(ranks=1)), match({})) is None
