"""Series of steps or runs: change points, levels, and periods of rare events.

Change points are found by Pettitt's test (1979), by whose rank statistic single outliers do not count. Levels are
where the median of a long series moves for good: millions of values are reduced to medians of blocks, which what recurs
every few values does not change; these are split, and each split is placed exactly, among the values themselves.
Periods are distances at which events recur beyond chance.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.base.statistics.bootstrap import DRAWS, FEWEST_RUNS, Floats, ratio_interval

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

FEWEST_FOR_CHANGE_POINT: Final = 8
"""Fewest runs in which a change point can be distinguished from noise: no order of fewer is rarer than 5 %."""
_CHANGE_LIMIT: Final = 0.05
_MIN_DRAWS: Final = 400
_MAX_CELLS: Final = 8_000_000
"""Permutations of the test: of a long series fewer, so that memory does not grow with it."""
_SEED: Final = 20_260_102

_MOST_BLOCKS: Final = 400
_SEGMENT: Final = 8
"""Fewest blocks of a level."""
_LEVEL_LIMIT: Final = 0.02
"""Accepted probability that chance shows a change as clear: of a run among runs, and of a level among blocks."""
_SPREADS: Final = 2.0
"""Fewest standard deviations of the blocks that levels differ by: a series that wanders has no levels."""
OF_MAD: Final = 1.4826
"""Standard deviation of normal values / their median absolute deviation."""
_SHARP: Final = 4.0
_GRADUAL: Final = 0.8
"""A line describes a gradual change better: its residual is below this part of that of two levels."""


_SHORTEST: Final = 4
"""Places of the shortest period: what alternates more often is a pattern of the series; its events are dropped."""
_FEWEST: Final = 4
"""Fewest events of a period."""
_MOST_PERIODS: Final = 5
_MOST_LAGS: Final = 64
_AROUND: Final = 16
"""Lags on each side that a lag is compared with."""
_COMPLETE: Final = 0.8
"""Least share of the places of a period that have an event."""
_GAP: Final = 2
"""Most places of a period in a row without an event."""
_LOG_CHANCE: Final = math.log(1e-3)
"""Largest number of periods as clear that chance may be expected to show, as its logarithm."""


class DetectedChange(NamedTuple):
    """A change point between two runs."""

    place: int
    """Index of the first run after it."""
    p_value: float
    interval: tuple[float, float]
    """95 % bootstrap interval of median after / median before, up to the neighbouring change points."""


class Levels(NamedTuple):
    """A series as levels, one after another."""

    starts: list[int]
    """Index of the first value of each level; the first is 0."""
    medians: list[float]
    exact: list[bool]
    """Whether a level's start is where the values change, or only near it, because they vary too much."""
    gradual: bool
    """Whether the series moves along a line rather than in steps."""


class Period(NamedTuple):
    """Events that recur."""

    places: Ints
    """Of the events; ascending."""
    period: int
    expected: int
    """Number of places from the first to the last event, at the period's distance."""


# ---- change points ---------------------------------------------------------------------------------------------------


def find_change_points(values: Sequence[float]) -> list[DetectedChange]:
    series = np.array(values, dtype=np.float64)
    # Testing both sides of a change takes two chances to be wrong: each side gets half of the limit.
    places = sorted(_splits(series, 0, pettitt_test, FEWEST_RUNS, FEWEST_FOR_CHANGE_POINT, _CHANGE_LIMIT, 0.5))
    ends = [0, *(place for place, _ in places), len(values)]
    detected = []
    for (place, p_value), start, end in zip(places, ends, ends[2:], strict=False):
        interval = ratio_interval(values[start:place], values[place:end])
        if interval and not interval[0] <= 1 <= interval[1]:
            detected.append(DetectedChange(place, p_value, interval))
    return detected


def _splits(
    values: Floats,
    start: int,
    test: Callable[[Floats, int], tuple[int, float]],
    segment: int,
    fewest: int,
    limit: float,
    share: float,
) -> Iterator[tuple[int, float]]:
    """Yield the change points of a series and of both sides of each, with their p-values.

    Args:
        test: `pettitt_test` or `pettitt_bound`.
        share: part of the limit that each side of a change gets.
    """
    if len(values) < fewest:
        return
    place, p_value = test(values, segment)
    if p_value > limit:
        return
    yield start + place, p_value
    yield from _splits(values[:place], start, test, segment, fewest, share * limit, share)
    yield from _splits(values[place:], start + place, test, segment, fewest, share * limit, share)


def pettitt_test(values: NDArray[np.float64], segment: int) -> tuple[int, float]:
    """Return the likeliest change point and its p-value.

    Returns:
        Index of the first value after the change, and how often chance alone would show a change as clear.
    """
    order = _ranks(values)
    statistic = _statistic(order[np.newaxis], segment)[0]
    draws = max(_MIN_DRAWS, min(DRAWS, _MAX_CELLS // len(order)))
    shuffled = np.random.default_rng(_SEED).permuted(np.tile(order, (draws, 1)), axis=1)
    place = int(statistic.argmax())
    as_clear = np.count_nonzero(_statistic(shuffled, segment).max(axis=1) >= statistic[place])
    return place + segment, (1 + int(as_clear)) / (1 + draws)


def _ranks(values: Floats) -> Floats:
    """Return each value's rank from 1; equal values share the mean of theirs."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(count)
    shared: Floats = (ends - (count - 1) / 2)[place]
    return shared


def _statistic(ranks: Floats, segment: int) -> Floats:
    """Return |U| of every split with enough values on both sides; one row per series."""
    length = ranks.shape[1]
    split = np.arange(1, length)
    statistic: Floats = np.abs(2 * np.cumsum(ranks, axis=1)[:, :-1] - split * (length + 1))
    return statistic[:, segment - 1 : length - segment]


def pettitt_bound(values: NDArray[np.float64], segment: int) -> tuple[int, float]:
    """Return the likeliest change point and an upper bound of its p-value, by Pettitt's formula.

    The bound is 2 exp(-6 K^2 / (n^3 + n^2)), without permutations: for many or long series, of at least 24 values.
    """
    length = len(values)
    statistic = _statistic(_ranks(values)[np.newaxis], segment)[0]
    place = int(statistic.argmax())
    exponent = -6 * float(statistic[place]) ** 2 / (length**3 + length**2)
    return place + segment, min(1.0, 2 * math.exp(exponent))


# ---- levels ----------------------------------------------------------------------------------------------------------


def block_length(count: int) -> int:
    return max(1, -(-count // _MOST_BLOCKS))


def block_medians(values: NDArray[np.floating[Any]], length: int) -> Floats:
    """Return the medians of blocks of `length` along the last axis; an incomplete last block is left out."""
    blocks = values.shape[-1] // length
    whole = values[..., : blocks * length].reshape(*values.shape[:-1], blocks, length)
    return np.asarray(np.median(whole, axis=-1) if length > 1 else whole[..., 0], np.float64)


def find_levels(values: Floats, least: float) -> Levels:
    """Return the levels of a series without NaN.

    Args:
        least: smallest difference of two levels that follow each other.
    """
    length = block_length(len(values))
    blocks = block_medians(values, length)
    splits = _splits(blocks, 0, pettitt_bound, _SEGMENT, 3 * _SEGMENT, _LEVEL_LIMIT, 1.0)
    places = _merged(blocks, sorted(place for place, _ in splits), least)
    placed = _placed(values, [place * length for place in places])
    starts = [0, *(place for place, _ in placed)]
    medians = [float(np.median(values[a:b])) for a, b in pairwise([*starts, len(values)])]
    ends = [*starts[2:], len(values)]  # of the level after each change
    clear = (_is_clear(values, *around) for around in zip(starts, starts[1:], ends, strict=False))
    exact = [True, *(only and sure for (_, only), sure in zip(placed, clear, strict=True))]
    return Levels(starts, medians, exact, bool(places) and _is_gradual(blocks, places))


def deviation(values: Floats) -> float:
    """Return the standard deviation of `values` from their median, by the median absolute deviation."""
    return OF_MAD * float(np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


def _merged(blocks: Floats, places: list[int], least: float) -> list[int]:
    """Return the places without those at which the level moves by less than `least`, or not beyond the spread."""
    while places:
        medians = _medians(blocks, places)
        moves = np.abs(np.diff(medians))
        rest = blocks - np.repeat(medians, np.diff([0, *places, len(blocks)]))
        smallest = int(moves.argmin())
        if moves[smallest] >= max(least, _SPREADS * deviation(rest)):
            break
        places = [place for number, place in enumerate(places) if number != smallest]
    return places


def _medians(blocks: Floats, places: list[int]) -> Floats:
    return np.array([np.median(blocks[a:b]) for a, b in pairwise([0, *places, len(blocks)])])


def _placed(values: Floats, places: list[int]) -> list[tuple[int, bool]]:
    """Move each place, in order, to where it separates the values around it best, by absolute deviations.

    Also returns whether that place is the only one: an outlier beside it may belong to either level.
    """
    placed: list[tuple[int, bool]] = []
    for number, place in enumerate(places):
        start = placed[-1][0] if placed else 0
        end = places[number + 1] if number + 1 < len(places) else len(values)
        before, after = float(np.median(values[start:place])), float(np.median(values[place:end]))
        gain = np.abs(values[start:end] - before) - np.abs(values[start:end] - after)
        gain[_is_far(values[start:end], before, after)] = 0
        sums = np.cumsum(gain)[:-1]
        placed.append((start + 1 + int(sums.argmin()), int((sums == sums.min()).sum()) == 1))
    return placed


def _is_far(values: Floats, before: float, after: float) -> NDArray[np.bool_]:
    """Return which values are so far from both levels that they do not tell which of them they belong to."""
    moved = abs(after - before)
    return np.asarray((values > max(before, after) + moved) | (values < min(before, after) - moved))


def _is_clear(values: Floats, start: int, place: int, end: int) -> bool:
    """Return whether a change is so much larger than the variation around it that its place is certain."""
    before, after = values[start:place], values[place:end]
    moved = abs(float(np.median(after)) - float(np.median(before)))
    return moved >= _SHARP * max(deviation(before), deviation(after))


def _is_gradual(blocks: Floats, places: list[int]) -> bool:
    """Return whether the blocks lie on a line rather than on two levels, or rise (or fall) in many steps."""
    moves = np.diff(_medians(blocks, places))
    if not (np.all(moves > 0) or np.all(moves < 0)):
        return False
    at = np.arange(len(blocks), dtype=np.float64)
    slope, offset = np.polyfit(at, blocks, 1)
    on_line = float(np.abs(blocks - (slope * at + offset)).mean())
    on_levels = min(
        float(np.abs(blocks - np.repeat(_medians(blocks, [place]), [place, len(blocks) - place])).mean())
        for place in places
    )
    return on_line < _GRADUAL * on_levels


# ---- periods ---------------------------------------------------------------------------------------------------------


def find_periods(events: Bools) -> list[Period]:
    """Return the periods of events, those with the most events first.

    Candidates are the lags at which the events' autocorrelation is largest, compared with the lags around them. A
    period counts if so many events at its places are beyond chance: with events of density p at random places, the
    expected number of progressions of h places with an event at most of them, n^2 / 2 (h - 1) times the binomial
    probability, must be below one in a thousand. p is at least the density from the first to the last of them: events
    that come in bursts are no period.
    """
    left = events.copy()
    found: list[Period] = []
    density = float(events.mean()) if len(events) else 0.0
    for _ in range(_MOST_PERIODS):
        best = max(_candidates(left, density), key=lambda one: (len(one.places), -one.period), default=None)
        if best is None:
            break
        if best.period >= _SHORTEST:
            found.append(best)
        left[best.places] = False
    return found


def _candidates(events: Bools, density: float) -> Iterator[Period]:
    places = np.flatnonzero(events)
    for lag in _lags(events):
        phases = places % lag
        for phase in np.flatnonzero(np.bincount(phases) >= _FEWEST):
            group = _longest_group(places[phases == phase], lag)
            expected = int(group[-1] - group[0]) // lag + 1
            if len(group) < _FEWEST or len(group) < _COMPLETE * expected:
                continue
            # Where events are frequent, some lie so by chance.
            local = max(density, float(events[group[0] : group[-1] + 1].mean()))
            if _log_chance(len(events), local, len(group), expected) < _LOG_CHANCE:
                yield Period(group, lag, expected)


def _lags(events: Bools) -> list[int]:
    """Return the lags with the most pairs of events, and with the most compared with the lags around them.

    Events that come in bursts make pairs at all short lags: without the comparison these would be all that is tried. A
    period whose multiples are among the lags around it stands out less than those: so the most pairs count, too. The
    autocorrelation is by FFT.
    """
    count = len(events)
    length = 1 << (2 * count - 1).bit_length()
    spectrum = np.fft.rfft(events.astype(np.float64), length)
    pairs = np.rint(np.fft.irfft(spectrum * spectrum.conj(), length)[: count // (_FEWEST - 1) + 1])
    pairs[:2] = 0
    around = _means_around(pairs)
    clear = np.argsort((around - pairs) / np.sqrt(np.maximum(around, 1.0)), kind="stable")[:_MOST_LAGS]
    most = np.argsort(-pairs, kind="stable")[:_MOST_LAGS]
    return [lag for lag in dict.fromkeys([*clear.tolist(), *most.tolist()]) if pairs[lag] >= _FEWEST - 2]


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
