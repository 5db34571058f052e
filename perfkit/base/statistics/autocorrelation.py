"""How far the median of an autocorrelated series strays by chance: slow stretches make few values of many."""

import math
from typing import Final

import numpy as np

from perfkit.base.statistics.bootstrap import Floats

_LEAST: Final = 0.8
"""Autocorrelation that is assumed where less is measured: short series do not tell."""
_MOST: Final = 0.97
_TAIL: Final = 0.1
"""Share of the values at each end that the spread leaves out, so that a single outlier does not decide."""
_NORMAL_RANGE: Final = 2.563
"""From the 10 % to the 90 % quantile of a normal distribution, in standard deviations."""


def chance_spread(series: Floats) -> float:
    """Return the standard deviation of the mean of the widest of several series of the same kind.

    The spread of its values, times what an autocorrelated series (AR(1)) of that length and autocorrelation has
    between means of whole series in units of the deviations within one. The autocorrelation is that of all series.

    Args:
        series: values in order of time, about any level; shape (s, n), n at least 2.
    """
    low, high = np.quantile(series, (_TAIL, 1 - _TAIL), axis=1)
    count = int(series.shape[1])
    rho = min(max(autocorrelation(series), _LEAST), _MOST)
    lags = np.arange(1, count)
    of_mean = float(1 + 2 * ((1 - lags / count) * rho**lags).sum()) / count
    within = (1 - of_mean) * count / (count - 1)
    widest = float(np.max(high - low)) / _NORMAL_RANGE
    return widest * math.sqrt(of_mean / within)


def autocorrelation(series: Floats) -> float:
    """Return the correlation of neighbouring values, over all series about their own means; 0 if nothing varies.

    The largest tenth of the deviations is clipped, and the first-order bias of short series corrected (Kendall 1954).
    """
    around = series - np.median(series, axis=1, keepdims=True)
    limit = np.quantile(np.abs(around), 1 - _TAIL)
    around = np.clip(around, -limit, limit)
    around -= around.mean(axis=1, keepdims=True)
    squares = float(np.square(around).sum())
    if squares == 0:
        return 0.0
    measured = float((around[:, 1:] * around[:, :-1]).sum()) / squares
    return measured + (1 + 3 * measured) / int(series.shape[1])
