"""Clocks with known offsets and drifts are recovered from the ends of collectives."""

import numpy as np
import pytest
from numpy.typing import NDArray

from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.ranks.clock_alignment import align, aligned
from perfkit.engine.ranks.matching import match
from tests.support.traces.calls_builder import EPOCH_NS, make_calls, make_matched

STEPS = 300
HOSTS = {0: "a", 1: "a", 2: "b", 3: "b"}
LATE = np.random.default_rng(1).integers(0, 3_000_000, (4, STEPS))


def jitter(ns: int) -> NDArray[np.int64]:
    return np.random.default_rng(2).integers(0, ns, (4, STEPS))


@pytest.mark.parametrize("offset_ns", [0, 1, -123_456_789, 3_600_000_000_000])
def test_a_constant_offset_is_found_exactly_without_noise(offset_ns: int) -> None:
    matched = make_matched(LATE, clock=lambda rank, ns: ns - offset_ns * (rank > 1))
    reference, other = align(matched, HOSTS)
    assert (reference.host, reference.ranks, reference.offset_ns, reference.residual_ns) == ("a", [0, 1], 0, 0)
    assert (other.host, other.ranks, other.offset_ns, other.residual_ns) == ("b", [2, 3], offset_ns, 0)
    assert (other.drift, other.collectives) == (0.0, 2 * STEPS)


def test_noise_stays_in_the_residual() -> None:
    matched = make_matched(LATE, clock=lambda rank, ns: ns - 7_000_000 * (rank > 1), jitter_ns=jitter(20_000))
    reference, other = align(matched, HOSTS)
    assert other.offset_ns == pytest.approx(7_000_000, abs=2_000)
    # The difference of two uniform variables: its median absolute deviation is 1 - 1/sqrt(2) of their width.
    assert other.residual_ns == pytest.approx(20_000 * (1 - 0.5**0.5), rel=0.15)
    assert reference.residual_ns == pytest.approx(20_000 * (1 - 0.5**0.5), rel=0.25)
    assert other.drift == 0


@pytest.mark.parametrize("drift", [5e-5, -2e-5])
def test_a_clock_that_drifts(drift: float) -> None:
    def clock(rank: int, ns: NDArray[np.int64]) -> NDArray[np.int64]:
        told: NDArray[np.int64] = ns - 7_000_000 - np.rint((ns - EPOCH_NS) * drift).astype(np.int64)
        return told if rank > 1 else ns

    matched = make_matched(LATE, clock=clock, jitter_ns=jitter(10_000))
    _, other = align(matched, HOSTS)
    assert other.drift == pytest.approx(drift, rel=0.05)
    assert other.residual_ns is not None
    assert other.residual_ns < 5_000
    instants = EPOCH_NS + np.arange(0, STEPS * 10_000_000, 100_000_000)
    assert np.abs(aligned(other, clock(2, instants)) - instants).max() < 10_000


def test_a_few_wrong_matches_do_not_move_the_offset() -> None:
    wrong = np.zeros((4, STEPS), np.int64)
    wrong[2:, ::10] = 50_000_000
    matched = make_matched(LATE, clock=lambda rank, ns: ns - 1_000 * (rank > 1), jitter_ns=wrong)
    assert align(matched, HOSTS)[1].offset_ns == 1_000


def test_hosts_connected_through_others_are_aligned_and_unconnected_are_not() -> None:
    def group(name: str) -> CollectiveKey:
        return CollectiveKey("all_reduce", name, 2, 1000, "float32")

    ends = (EPOCH_NS + np.arange(5) * 1_000_000).tolist()

    def calls(kind: CollectiveKey, behind_ns: int) -> object:
        return make_calls([1000] * 5, [end - behind_ns for end in ends], kind)

    # Host a's rank 0 meets b's rank 1; b's rank 2 meets c's rank 3; d's ranks 4 and 5 meet only each other.
    ranks = [("x", 0), ("x", 10), ("y", 10), ("y", 30), ("z", 70), ("z", 70)]
    matched = match({rank: calls(group(name), behind) for rank, (name, behind) in enumerate(ranks)})  # type: ignore[misc]
    found = align(matched, {0: "a", 1: "b", 2: "b", 3: "c", 4: "d", 5: "d"})
    assert [(clock.host, clock.offset_ns) for clock in found] == [("a", 0), ("b", 10), ("c", 30), ("d", None)]


def test_the_reference_is_not_compared_with_itself() -> None:
    kind = CollectiveKey("all_reduce", "x", 2, 1000, "float32")
    ends = (EPOCH_NS + np.arange(5) * 1_000_000).tolist()
    matched = match({rank: make_calls([1000] * 5, ends, kind) for rank in (1, 2)})
    reference, other = align(matched, {0: "a", 1: "b", 2: "a", 3: "b"})
    assert (reference.residual_ns, reference.collectives) == (None, 0)
    assert (other.offset_ns, other.collectives) == (0, 5)


def test_a_rank_with_an_unknown_host_has_its_own_clock() -> None:
    matched = make_matched(LATE[:2], clock=lambda rank, ns: ns - 99 * rank)
    assert [(clock.host, clock.ranks, clock.offset_ns) for clock in align(matched, {0: None, 1: None})] == [
        (None, [0], 0),
        (None, [1], 99),
    ]


def test_nothing_to_compare_by() -> None:
    assert [clock.offset_ns for clock in align(match({}), {0: "a", 1: "b"})] == [0, None]
