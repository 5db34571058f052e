"""Periods of rare events in a long series: which of them recur every so many places, beyond chance."""

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

SHORTEST: Final = 4
"""Places of the shortest period: what alternates more often is a pattern of the series; its events are dropped."""
_SHORT: Final = 32
"""Of shorter periods, the density of events is that around them: where events are frequent, some lie so by chance."""
FEWEST: Final = 4
"""Fewest events of a period."""
_MOST_PERIODS: Final = 5
_MOST_LAGS: Final = 64
_AROUND: Final = 16
"""Lags on each side that a lag is compared with."""
_COMPLETE: Final = 0.8
"""Least share of the places of a period that have an event."""
_GAP: Final = 2
"""Most places of a period in a row without an event."""
_LIMIT: Final = math.log(1e-3)
"""Largest number of periods as clear that chance may be expected to show, as its logarithm."""


class Period(NamedTuple):
    """Events that recur."""

    places: Ints
    """Of the events; ascending."""
    period: int
    expected: int
    """Number of places from the first to the last event, at the period's distance."""


def find_periods(events: Bools) -> list[Period]:
    """Return the periods of events, those with the most events first.

    Candidates are the lags at which the events' autocorrelation is largest, compared with the lags around them. A
    period counts if so many events at its places are beyond chance: with events of density p at random places, the
    expected number of progressions of h places with an event at most of them, n^2 / 2 (h - 1) times the binomial
    probability, must be below one in a thousand. Of periods below 32 places, p is at least the density where they are:
    events that come in bursts are no period.
    """
    left = events.copy()
    found: list[Period] = []
    density = float(events.mean()) if len(events) else 0.0
    for _ in range(_MOST_PERIODS):
        best = max(_candidates(left, density), key=lambda one: (len(one.places), -one.period), default=None)
        if best is None:
            break
        if best.period >= SHORTEST:
            found.append(best)
        left[best.places] = False
    return found


def _candidates(events: Bools, density: float) -> Iterator[Period]:
    places = np.flatnonzero(events)
    for lag in _lags(events):
        phases = places % lag
        for phase in np.flatnonzero(np.bincount(phases) >= FEWEST):
            group = _longest_group(places[phases == phase], lag)
            expected = int(group[-1] - group[0]) // lag + 1
            if len(group) < FEWEST or len(group) < _COMPLETE * expected:
                continue
            if _log_chance(len(events), max(density, _local(events, group, lag)), len(group), expected) < _LIMIT:
                yield Period(group, lag, expected)


def _local(events: Bools, group: Ints, lag: int) -> float:
    """Return the density of events from the first to the last of a short period; 0 for longer ones."""
    return 0.0 if lag >= _SHORT else float(events[group[0] : group[-1] + 1].mean())


def _lags(events: Bools) -> list[int]:
    """Return the lags with the most pairs of events, and with the most compared with the lags around them.

    Events that come in bursts make pairs at all short lags: without the comparison these would be all that is tried. A
    period whose multiples are among the lags around it stands out less than those: so the most pairs count, too. The
    autocorrelation is by FFT.
    """
    count = len(events)
    length = 1 << (2 * count - 1).bit_length()
    spectrum = np.fft.rfft(events.astype(np.float64), length)
    pairs = np.rint(np.fft.irfft(spectrum * spectrum.conj(), length)[: count // (FEWEST - 1) + 1])
    pairs[:2] = 0
    around = _means_around(pairs)
    clear = np.argsort((around - pairs) / np.sqrt(np.maximum(around, 1.0)), kind="stable")[:_MOST_LAGS]
    most = np.argsort(-pairs, kind="stable")[:_MOST_LAGS]
    return [lag for lag in dict.fromkeys([*clear.tolist(), *most.tolist()]) if pairs[lag] >= FEWEST - 2]


def _means_around(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return of each value the mean of the `_AROUND` before and after it, without itself."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    first, last = np.maximum(0, places - _AROUND), np.minimum(len(values), places + _AROUND + 1)
    means: NDArray[np.float64] = (sums[last] - sums[first] - values) / np.maximum(1, last - first - 1)
    return means


def _longest_group(places: Ints, lag: int) -> Ints:
    """Return the most events in a row between which at most `_GAP` places are without one."""
    groups = np.split(places, np.flatnonzero(np.diff(places) > (_GAP + 1) * lag) + 1)
    return max(groups, key=len)


def _log_chance(count: int, density: float, events: int, expected: int) -> float:
    progressions = 2 * math.log(count) - math.log(2 * (expected - 1))
    ways = math.lgamma(expected + 1) - math.lgamma(events + 1) - math.lgamma(expected - events + 1)
    return progressions + ways + events * math.log(density)
