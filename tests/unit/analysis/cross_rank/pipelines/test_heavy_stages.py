"""Generated times of micro-batches: a heavy stage is found with its size, equal stages are not called heavy."""

from collections.abc import Callable
from typing import Final

import numpy as np
import pytest

from perfkit.analysis.cross_rank.pipelines.balance import excess_by_place
from perfkit.trace.intervals import Ints

Shape = tuple[int, int, int]
Noise = Callable[[np.random.Generator, Shape], np.ndarray]

US: Final = 1000
CASES: Final = 125


def _with_outlier(draw: np.random.Generator, shape: Shape) -> np.ndarray:
    times = draw.normal(1, 0.02, shape)
    times.flat[draw.integers(times.size)] *= draw.uniform(2, 20)
    return times


NOISES: dict[str, Noise] = {
    "normal": lambda draw, shape: draw.normal(1, 0.05, shape),
    "wide": lambda draw, shape: np.clip(draw.normal(1, 0.2, shape), 0.1, None),
    "one outlier": _with_outlier,
    "by step": lambda draw, shape: draw.uniform(0.7, 1.3, (1, 1, shape[2])) * draw.normal(1, 0.05, shape),
    "heavy tail": lambda draw, shape: 0.7 + 0.3 * (1 + draw.pareto(2, shape)),
    "no mean": lambda draw, shape: 1 + 0.1 * np.abs(draw.standard_cauchy(shape)),
}
SHAPES: list[Shape] = [(2, 4, 3), (4, 4, 3), (4, 8, 3), (8, 8, 3)]


def times_of(draw: np.random.Generator, noise: str, shape: Shape) -> Ints:
    return (1000 * US * NOISES[noise](draw, shape)).astype(np.int64)


@pytest.mark.parametrize("noise", NOISES)
def test_equal_stages_are_hardly_ever_called_heavy(noise: str) -> None:
    """Of the 500 cases 0.5 % are 2.5; more than 8 come by chance once in a thousand times."""
    draw = np.random.default_rng(13)
    named = [bool(excess_by_place(times_of(draw, noise, shape))) for shape in SHAPES for _ in range(CASES)]
    assert sum(named) <= 8


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("noise", ["normal", "one outlier", "by step"])
def test_a_stage_30_percent_heavier_is_found_with_its_size(noise: str, shape: Shape) -> None:
    draw = np.random.default_rng(13)
    excess = []
    for _ in range(50):
        times, at = times_of(draw, noise, shape), int(draw.integers(shape[0]))
        times[at] = 1.3 * times[at]
        found = excess_by_place(times)
        assert set(found) == {at}
        excess.append(found[at])
    assert np.median(excess) == pytest.approx(0.3, rel=0.1)
    if noise == "one outlier":  # the others' noise of 5 % is more than a tenth of 30 %
        assert np.mean(np.abs(np.array(excess) - 0.3) <= 0.03) >= 0.95


def test_too_few_micro_batches_tell_nothing() -> None:
    times = np.array([[[130], [131]], [[100], [101]]]) * US
    assert excess_by_place(times) == {}
    assert set(excess_by_place(np.repeat(times, 6, axis=1))) == {0}
