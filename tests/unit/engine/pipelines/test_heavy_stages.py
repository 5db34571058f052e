"""Generated times of micro-batches: a heavy stage is found with its size, equal stages are not called heavy."""

from typing import Final

import numpy as np
import pytest

from perfkit.engine.pipelines.balance import excess_by_place
from tests.support.traces.stage_noise import CORRELATED, INDEPENDENT, Shape, times_of

US: Final = 1000
CASES: Final = 50
SHAPES: list[Shape] = [(2, 4, 3), (4, 4, 3), (4, 8, 3), (8, 8, 3)]


@pytest.mark.parametrize("noise", [*INDEPENDENT, *(name for name in CORRELATED if name[-4:] != "0.95")])
def test_equal_stages_are_hardly_ever_called_heavy(noise: str) -> None:
    """At most about 2 % are, where the recording is longer than most stretches: one that is as long tells nothing."""
    draw = np.random.default_rng(13)
    shapes = SHAPES[2:] if noise == "stretches of 6" else SHAPES
    kind = {**INDEPENDENT, **CORRELATED}[noise]
    named = [bool(excess_by_place(times_of(kind, draw, shape))) for shape in shapes for _ in range(CASES)]
    assert sum(named) <= (0 if noise in INDEPENDENT else 0.04 * len(named))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("noise", ["normal, 2 %", "one outlier", "by step"])
def test_a_stage_30_percent_heavier_is_found_with_its_size(noise: str, shape: Shape) -> None:
    draw = np.random.default_rng(13)
    excess: list[float] = []
    for _ in range(CASES):
        times, at = times_of(INDEPENDENT[noise], draw, shape), int(draw.integers(shape[0]))
        times[at] = 1.3 * times[at]
        found = excess_by_place(times)
        assert set(found) <= {at}
        excess += found.values()
    assert len(excess) >= 0.95 * CASES
    assert np.median(excess) == pytest.approx(0.3, rel=0.1)
    if noise != "by step":
        assert np.mean(np.abs(np.array(excess) - 0.3) <= 0.03) >= 0.95


def test_a_stage_that_is_slow_for_most_of_the_recording_is_not_called_heavy() -> None:
    times = np.random.default_rng(13).normal(1000 * US, 10 * US, (4, 8, 3)).astype(np.int64)
    slow = times.copy()
    slow[2, :, :2] = 1.5 * slow[2, :, :2]
    assert excess_by_place(slow) == {}
    slow[2, :, 2] = 1.5 * slow[2, :, 2]
    assert set(excess_by_place(slow)) == {2}


def test_a_stage_of_twice_the_layers_is_found_although_another_is_slow_for_a_while() -> None:
    times = np.random.default_rng(13).normal(1000 * US, 30 * US, (2, 4, 5)).astype(np.int64)
    times[1] = 2.5 * times[1]
    times[0, 1:3, 2] = 1.8 * times[0, 1:3, 2]
    assert set(excess_by_place(times)) == {1}


def test_too_few_micro_batches_tell_nothing() -> None:
    times = np.array([[[130], [131]], [[100], [101]]]) * US
    assert excess_by_place(times) == {}
    assert set(excess_by_place(np.repeat(times, 6, axis=1))) == {0}
