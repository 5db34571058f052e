"""Clocks with known offsets and drifts are recovered from the ends of collectives."""

import numpy as np
import pytest
from numpy.typing import NDArray

from perfkit.engine.communication.collective_calls import CollectiveCalls
from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.ranks.clock_alignment import align, aligned
from perfkit.engine.ranks.matching import MatchedCollectives, match
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


# ---- messages --------------------------------------------------------------------------------------------------------

OFFSET_NS = 12_345_678


def exchanged(
    *, transfer_ns: int = 400_000, buffered: bool = False, one_way: bool = False, drift: float = 0.0, steps: int = 40
) -> MatchedCollectives:
    """Return what rank 0 sends to rank 1, whose clock is behind, and gets back; who is first waits for the other."""
    random = np.random.default_rng(3)
    begin = EPOCH_NS + np.arange(steps) * 10_000_000
    rows: dict[int, list[tuple[str, int, NDArray[np.int64], NDArray[np.int64]]]] = {0: [], 1: []}
    for source, at_ns in ((0, 0),) if one_way else ((0, 0), (1, 4_000_000)):
        sent, received = (begin + at_ns + random.integers(0, 900_000, steps) for _ in range(2))
        ended = np.maximum(sent, received) + transfer_ns
        rows[source].append(("send", 1 - source, sent, sent + 20_000 if buffered else ended))
        rows[1 - source].append(("recv", source, received, ended))

    def calls(rank: int) -> CollectiveCalls:
        kinds, own = [], []
        for operator, peer, start, end in rows[rank]:
            kinds.append(CollectiveKey(operator, "pp", 2, 1000, "float32", peer=peer))
            behind = OFFSET_NS + np.rint((end - EPOCH_NS) * drift).astype(np.int64) if rank else 0
            own.append(make_calls((end - start).tolist(), (end - behind).tolist(), kinds[-1]))
        tables = [np.frombuffer(one.columns, np.int64).reshape(-1, steps).copy() for one in own]
        for number, table in enumerate(tables):
            table[0] = number
        return CollectiveCalls(kinds=kinds, columns=bytearray(np.hstack(tables)), progress_ns=0)

    return match({rank: calls(rank) for rank in (0, 1)})


@pytest.mark.parametrize("transfer_ns", [10_000, 400_000, 3_000_000])
def test_messages_in_both_directions_align_hosts_that_share_nothing_else(transfer_ns: int) -> None:
    _, other = align(exchanged(transfer_ns=transfer_ns), {0: "a", 1: "b"})
    assert (other.offset_ns, other.residual_ns) == (OFFSET_NS, 0)


def test_sends_that_are_buffered_align_within_the_residual() -> None:
    _, other = align(exchanged(buffered=True), {0: "a", 1: "b"})
    assert other.offset_ns is not None
    assert other.residual_ns is not None
    assert abs(other.offset_ns - OFFSET_NS) <= other.residual_ns < 500_000


def test_clocks_that_drift_are_aligned_by_messages() -> None:
    matched = exchanged(drift=2e-4, transfer_ns=20_000, steps=90)
    _, other = align(matched, {0: "a", 1: "b"})
    assert other.drift == pytest.approx(2e-4, rel=0.01)
    assert other.residual_ns is not None
    assert other.residual_ns < 1_000


def test_messages_in_one_direction_bound_a_clock_from_one_side_only() -> None:
    assert align(exchanged(one_way=True), {0: "a", 1: "b"})[1].offset_ns is None
