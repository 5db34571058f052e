"""Latency and bandwidth are recovered from transfers of several sizes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.engine.communication.collective_metadata import CollectiveKey
from perfkit.engine.ranks.bandwidth import bus_factor, fits
from perfkit.records.cross_rank import MatchedCollectiveStat
from perfkit.records.facts import statement

ALPHA_NS, BETA = 20_000.0, 100e9


def row(size: int, transfer_ns: float, *, group: str = "0", ranks: int = 8, count: int = 1) -> MatchedCollectiveStat:
    return MatchedCollectiveStat(
        operator="all_reduce",
        group=group,
        group_size=ranks,
        bytes=size,
        dtype="float32",
        count=count,
        wait_ns=0,
        transfer_ns=transfer_ns,
        algbw=None,
        busbw=None,
    )


def model(size: int, alpha_ns: float = ALPHA_NS, beta: float = BETA, ranks: int = 8) -> float:
    return alpha_ns + 2 * (ranks - 1) / ranks * size / beta * 1e9


SIZES = [1 << shift for shift in range(12, 28, 2)]


def test_exact_points_return_the_parameters() -> None:
    (fit,) = fits([row(size, model(size)) for size in SIZES])
    assert (fit.sizes, fit.reason) == (len(SIZES), None)
    assert fit.alpha_ns == pytest.approx(ALPHA_NS)
    assert fit.beta == pytest.approx(BETA)
    assert fit.error == pytest.approx(0, abs=1e-9)


def test_noisy_points_return_the_parameters_approximately() -> None:
    random = np.random.default_rng(5)
    (fit,) = fits([row(size, model(size) * random.normal(1, 0.05)) for size in SIZES])
    assert fit.alpha_ns == pytest.approx(ALPHA_NS, rel=0.15)
    assert fit.beta == pytest.approx(BETA, rel=0.15)
    assert fit.error == pytest.approx(0.05, rel=0.6)


def test_two_sizes_are_not_enough_and_types_of_one_size_are_one() -> None:
    (fit,) = fits([row(1000, 10.0), row(1000, 20.0), row(2000, 30.0)])
    assert (fit.sizes, fit.alpha_ns, fit.beta) == (2, None, None)
    assert fit.reason == statement("few_message_sizes", sizes=2, fewest=3)


def test_a_group_of_one_rank_transfers_nothing() -> None:
    assert fits([row(size, 10.0, ranks=1) for size in SIZES]) == []


def test_groups_are_fitted_apart() -> None:
    slow = [row(size, model(size, beta=BETA / 10), group="1") for size in SIZES]
    first, second = fits([*slow, *(row(size, model(size)) for size in SIZES)])
    assert (first.group, second.group) == ("0", "1")
    assert first.beta == pytest.approx(10 * second.beta)  # type: ignore[operator]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 2**40), st.floats(1, 1e12)), min_size=3, max_size=9, unique_by=lambda p: p[0]))
def test_nothing_is_negative_and_no_axis_is_better(points: list[tuple[int, float]]) -> None:
    (fit,) = fits([row(size, ns) for size, ns in points])
    assert fit.alpha_ns is not None
    assert fit.alpha_ns >= 0
    assert fit.beta is None or fit.beta > 0
    times = np.array([ns for _, ns in points])
    flat = (1 / times).sum() / (1 / times**2).sum()
    assert fit.error is not None
    assert fit.error <= np.sqrt(np.mean((flat / times - 1) ** 2)) * (1 + 1e-6)


def test_times_that_fall_with_the_size_have_no_bandwidth() -> None:
    (fit,) = fits([row(1000, 30.0), row(2000, 20.0), row(3000, 10.0)])
    assert fit.beta is None
    assert fit.alpha_ns == pytest.approx(15, rel=0.3)


@pytest.mark.parametrize(
    ("operator", "ranks", "factor"),
    [
        ("all_reduce", 8, 1.75),
        ("all_gather", 8, 0.875),
        ("reduce_scatter", 2, 0.5),
        ("all_gather", None, None),
        ("broadcast", 8, 1),
        ("send_recv", None, 1),
    ],
)
def test_bytes_on_the_bus_per_byte_of_a_collective(operator: str, ranks: int | None, factor: float | None) -> None:
    assert bus_factor(CollectiveKey(operator, group_size=ranks)) == factor
