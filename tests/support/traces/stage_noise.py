"""Generated times of the micro-batches of equal stages, with noise that is independent, and that comes in stretches."""

from collections.abc import Callable
from typing import Final

import numpy as np

from perfkit.trace.intervals import Ints

Shape = tuple[int, int, int]
"""Stages, micro-batches and steps."""
Noise = Callable[[np.random.Generator, Shape], np.ndarray]

_US: Final = 1000


def _with_outlier(draw: np.random.Generator, shape: Shape) -> np.ndarray:
    times = draw.normal(1, 0.02, shape)
    times.flat[draw.integers(times.size)] *= draw.uniform(2, 20)
    return times


def _in_order(times: np.ndarray, shape: Shape) -> np.ndarray:
    """Return series in order of time, shape (s, k * m), as micro-batches of steps."""
    stages, batches, steps = shape
    return times.reshape(stages, steps, batches).transpose(0, 2, 1)


def _autocorrelated(deviation: float, rho: float) -> Noise:
    """Return log-normal noise that remembers the micro-batch before, over all steps."""

    def noise(draw: np.random.Generator, shape: Shape) -> np.ndarray:
        fresh = draw.standard_normal((shape[0], shape[1] * shape[2]))
        for at in range(1, fresh.shape[1]):
            fresh[:, at] = rho * fresh[:, at - 1] + np.sqrt(1 - rho**2) * fresh[:, at]
        return _in_order(np.exp(deviation * fresh), shape)

    return noise


def _in_stretches(length: float) -> Noise:
    """Return noise of a stage that takes 50 % longer for `length` micro-batches on average, a third of the time."""

    def noise(draw: np.random.Generator, shape: Shape) -> np.ndarray:
        times = draw.normal(1, 0.02, (shape[0], shape[1] * shape[2]))
        slow = draw.random(shape[0]) < 1 / 3
        for at in range(times.shape[1]):
            times[slow, at] *= 1.5
            slow ^= draw.random(shape[0]) < np.where(slow, 1, 0.5) / length
        return _in_order(times, shape)

    return noise


INDEPENDENT: Final[dict[str, Noise]] = {
    "normal, 2 %": lambda draw, shape: draw.normal(1, 0.02, shape),
    "normal, 5 %": lambda draw, shape: draw.normal(1, 0.05, shape),
    "normal, 20 %": lambda draw, shape: np.clip(draw.normal(1, 0.2, shape), 0.1, None),
    "one outlier": _with_outlier,
    "by step": lambda draw, shape: draw.uniform(0.7, 1.3, (1, 1, shape[2])) * draw.normal(1, 0.03, shape),
    "heavy tail": lambda draw, shape: 0.7 + 0.3 * (1 + draw.pareto(2, shape)),
    "no mean": lambda draw, shape: 1 + 0.1 * np.abs(draw.standard_cauchy(shape)),
}
CORRELATED: Final[dict[str, Noise]] = {
    "5 %, autocorrelation 0.8": _autocorrelated(0.05, 0.8),
    "20 %, autocorrelation 0.5": _autocorrelated(0.2, 0.5),
    "20 %, autocorrelation 0.8": _autocorrelated(0.2, 0.8),
    "20 %, autocorrelation 0.95": _autocorrelated(0.2, 0.95),
    "stretches of 2": _in_stretches(2),
    "stretches of 6": _in_stretches(6),
}


def times_of(noise: Noise, draw: np.random.Generator, shape: Shape) -> Ints:
    """Return the work of each stage, micro-batch and step (ns), about 1 ms."""
    return (1000 * _US * noise(draw, shape)).astype(np.int64)
