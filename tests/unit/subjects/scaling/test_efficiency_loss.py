"""Efficiency losses, in parts that add up."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.records.scaling import Factors, LostEfficiency
from perfkit.report.content.scaling import tenths
from perfkit.subjects.scaling.efficiency_loss import PARTS, attribute_loss, logarithmic_mean
from tests.support.reports.report_builders import make_rank, make_step
from tests.support.reports.scaling_builders import make_factored, make_scaled
from tests.support.reports.worded import scaling

IDEAL = {"load_balance": 1.0, "host": 1.0, "input": 1.0, "serialisation": 1.0, "transfer": 1.0}

factor = st.floats(1e-3, 1.0)


@st.composite
def some_factors(draw: st.DrawFn) -> Factors:
    parts = {name: draw(factor) for name in PARTS} | {"computation_scaling": draw(st.floats(0.1, 3.0))}
    return Factors(global_efficiency=math.prod(parts.values()), **parts)


def parts_of(lost: LostEfficiency) -> dict[str, float]:
    return {name: getattr(lost, name) for name in PARTS}


@settings(deadline=None)
@given(some_factors(), some_factors())
def test_the_parts_add_up_to_what_was_lost(before: Factors, after: Factors) -> None:
    lost = attribute_loss(1, before, 2, after)
    assert lost.total == math.fsum(parts_of(lost).values())
    assert lost.total == pytest.approx(100 * (before.global_efficiency - after.global_efficiency), rel=1e-9, abs=1e-9)
    for name, part in parts_of(lost).items():
        # What got worse lost, what got better gained, what stayed did neither.
        assert part * (getattr(before, name) - getattr(after, name)) >= 0


@settings(deadline=None)
@given(some_factors())
def test_nothing_is_lost_between_equals(factors: Factors) -> None:
    assert set(parts_of(attribute_loss(1, factors, 2, factors)).values()) == {0.0}


@settings(deadline=None)
@given(st.floats(1e-6, 2), st.floats(-1e-4, 1e-4))
def test_the_logarithmic_mean_lies_between(a: float, difference: float) -> None:
    b = a * (1 + difference)
    assert min(a, b) * (1 - 1e-9) <= logarithmic_mean(a, b) <= max(a, b) * (1 + 1e-9)


@settings(deadline=None)
@given(st.lists(st.floats(-100, 100), min_size=1, max_size=6))
def test_the_parts_that_are_shown_add_up_too(parts: list[float]) -> None:
    shown = tenths(parts)
    assert sum(shown) == round(10 * sum(parts))
    assert all(abs(figure - 10 * part) <= 1 for figure, part in zip(shown, parts, strict=True))


def test_known_losses() -> None:
    runs = [
        make_factored(1, 400, IDEAL, batch=64),
        make_factored(2, 500, IDEAL | {"transfer": 0.8, "input": 0.9}, batch=32),
        make_factored(4, 500, IDEAL | {"transfer": 0.8, "input": 0.5}, batch=16),
    ]
    together = scaling(runs)
    assert together is not None
    (series,) = together.series
    factors = [point.factors for point in series.points]
    assert factors[1] is not None
    assert factors[1].computation_scaling == pytest.approx(0.8)  # a quarter more of it for the same global batch
    assert factors[1].global_efficiency == pytest.approx(0.8 * 0.9 * 0.8)
    first, second = series.lost
    mean = (1 - 0.576) / math.log(1 / 0.576)
    assert first.total == pytest.approx(42.4)
    assert first.transfer == pytest.approx(100 * mean * math.log(1 / 0.8))
    assert first.computation_scaling == pytest.approx(first.transfer)
    assert second.input == pytest.approx(second.total) == pytest.approx(100 * (0.576 - 0.32))
    assert (first.load_balance, second.transfer) == (0, 0)


def test_weak_scaling_expects_more_computation_of_more_ranks() -> None:
    together = scaling([make_factored(1, 100, IDEAL), make_factored(4, 500, IDEAL)])
    assert together is not None
    found = [point.factors.computation_scaling for point in together.series[0].points if point.factors]
    assert found == pytest.approx([1, 0.8])


def test_repeats_are_averaged_so_that_factors_still_multiply() -> None:
    runs = [
        make_factored(p, 400, IDEAL | {"transfer": transfer}, batch=64 // p, name=f"{p}-{transfer}")
        for p in (1, 2)
        for transfer in (0.5, 0.8)
    ]
    together = scaling(runs)
    assert together is not None
    for point in together.series[0].points:
        assert point.factors is not None
        assert point.factors.transfer == pytest.approx(math.sqrt(0.4))
        assert point.factors.global_efficiency == pytest.approx(
            math.prod(getattr(point.factors, name) for name in PARTS)
        )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"ranks": []}, "no trace was recorded"),
        ({"ranks": [make_rank(0)]}, "traces of 1 of 2 ranks"),
        ({"ranks": [make_rank(0), make_rank(1, [make_step()])]}, "the ranks recorded different numbers of steps"),
        ({"efficiency": None}, "rank numbers are unknown"),
    ],
)
def test_without_all_ranks_there_are_no_factors(change: dict[str, Any], reason: str) -> None:
    together = scaling([make_factored(1, 100, IDEAL), make_scaled(2, 100, **change)])
    assert together is not None
    (series,) = together.series
    assert series.lost == []
    assert series.points[1].factors_reason == reason
