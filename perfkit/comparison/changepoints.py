"""Detect the change points of a series of runs: places where its level moves by more than noise.

Pettitt's test finds the likeliest place, and is then applied to both sides of it. With fewer than eight runs no order
of two levels is rarer than one in twenty, so no change point is ever reported.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from perfkit.stats.bootstrap import FEWEST_RUNS, ratio_interval
from perfkit.stats.pettitt import pettitt_test

FEWEST_FOR_CHANGE_POINT: Final = 8
"""Fewest runs in which a change point can be distinguished from noise."""
_LIMIT: Final = 0.05


class DetectedChange(NamedTuple):
    """A change point between two runs."""

    place: int
    """Index of the first run after it."""
    p_value: float
    interval: tuple[float, float]
    """95 % bootstrap interval of median after / median before, up to the neighbouring change points."""


def find_change_points(values: Sequence[float]) -> list[DetectedChange]:
    """Return the change points of a series in order."""
    places = sorted(_places(values, 0, _LIMIT))
    ends = [0, *(place for place, _ in places), len(values)]
    detected = []
    for (place, p_value), start, end in zip(places, ends, ends[2:], strict=False):
        interval = ratio_interval(values[start:place], values[place:end])
        if interval and not interval[0] <= 1 <= interval[1]:
            detected.append(DetectedChange(place, p_value, interval))
    return detected


def _places(values: Sequence[float], start: int, limit: float) -> Iterator[tuple[int, float]]:
    if len(values) < FEWEST_FOR_CHANGE_POINT:
        return
    place, p_value = pettitt_test(np.array(values, dtype=np.float64), FEWEST_RUNS)
    if p_value > limit:
        return
    yield start + place, p_value
    # Testing both sides takes two chances to be wrong: each side gets half of the limit.
    yield from _places(values[:place], start, limit / 2)
    yield from _places(values[place:], start + place, limit / 2)
