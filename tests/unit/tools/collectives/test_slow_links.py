"""Slow hosts, ranks and pairs in matrices whose truth is known."""

from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np
import pytest

from perfkit.tools.collectives.slow_links import PairTimes, find_slow_links, rounds


def times(
    ranks: int, slow: Iterable[tuple[int, int]] = (), *, ratio: float = 4.0, noise: float = 0.02, seed: int = 0
) -> PairTimes:
    """Return times of 1 ms, and `ratio` ms for slow pairs, that vary by `noise` between passes."""
    draw = np.random.default_rng(seed)
    usual = np.ones((ranks, ranks))
    for a, b in slow:
        usual[a, b] = usual[b, a] = ratio
    upper = np.triu(draw.normal(1, noise / 3, (ranks, ranks)), 1)
    median = usual * (upper + upper.T + np.eye(ranks)) * 1e6
    np.fill_diagonal(median, np.nan)
    return PairTimes(median, median * noise)


def found(given: PairTimes, hosts: Sequence[str] | None = None) -> list[tuple[str, list[int]]]:
    names = hosts or ["host"] * len(given.median_ns)
    return [(link.kind, link.ranks) for link in find_slow_links(given, names, "bandwidth")]


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 32])
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.3, 1.0])
def test_nothing_is_named_where_nothing_is_slow(ranks: int, noise: float) -> None:
    for seed in range(20):
        assert found(times(ranks, noise=noise, seed=seed)) == []


@pytest.mark.parametrize("ranks", [3, 4, 8, 32])
def test_a_slow_pair_is_named(ranks: int) -> None:
    assert found(times(ranks, [(0, 2)])) == [("pair", [0, 2])]


def test_a_slow_pair_is_not_named_within_noise() -> None:
    assert found(times(8, [(0, 2)], ratio=1.4)) == []
    assert found(times(8, [(0, 2)], noise=0.6)) == []


@pytest.mark.parametrize("ranks", [3, 4, 8])
def test_a_slow_rank_is_named_instead_of_its_pairs(ranks: int) -> None:
    assert found(times(ranks, [(1, other) for other in range(ranks) if other != 1])) == [("rank", [1])]


def test_of_two_ranks_nobody_can_tell_which_is_slow() -> None:
    assert found(times(2, [(0, 1)])) == []


def test_pairs_between_hosts_are_not_slow_because_pairs_within_hosts_are_fast() -> None:
    hosts = ["a", "a", "b", "b"]
    between = [(0, 2), (0, 3), (1, 2), (1, 3)]
    assert found(times(4, between), hosts) == []
    assert found(times(3, [(0, 2), (1, 2)]), ["a", "a", "b"]) == []


def test_a_slow_host_is_named_instead_of_its_ranks() -> None:
    hosts = ["a", "a", "b", "b", "c", "c"]
    slow = [(rank, other) for rank in (2, 3) for other in (0, 1, 4, 5)]
    assert found(times(6, slow), hosts) == [("host", [2, 3])]


def test_a_slow_pair_beside_a_slow_rank_is_named_too() -> None:
    slow = [(0, other) for other in range(1, 8)] + [(3, 5)]
    assert found(times(8, slow)) == [("rank", [0]), ("pair", [3, 5])]


def test_the_ratio_is_that_to_comparable_pairs() -> None:
    (link,) = find_slow_links(times(8, [(0, 2)], ratio=5), ["host"] * 8, "latency")
    assert link.ratio == pytest.approx(5, rel=0.05)
    assert link.measure == "latency"


@pytest.mark.parametrize("ranks", [2, 3, 4, 5, 8, 13, 64])
def test_every_pair_meets_once_in_rounds_of_disjoint_pairs(ranks: int) -> None:
    played = list(rounds(ranks))
    assert len(played) == (ranks - 1 if ranks % 2 == 0 else ranks)
    for pairs in played:
        members = [rank for pair in pairs for rank in pair]
        assert len(members) == len(set(members)) == ranks // 2 * 2
    assert sorted(pair for pairs in played for pair in pairs) == list(combinations(range(ranks), 2))
