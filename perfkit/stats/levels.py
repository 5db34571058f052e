"""Levels of a long series: where its median moves for good, at once or gradually.

A series of up to millions of values is reduced to medians of blocks, which single outliers, and what recurs every few
values, do not change. Pettitt's test splits these; each split is then placed exactly, among the values themselves.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.stats.bootstrap import Floats
from perfkit.stats.pettitt import pettitt_bound

MOST_BLOCKS: Final = 400
_SEGMENT: Final = 8
"""Fewest blocks of a level."""
_LIMIT: Final = 0.02
_SPREADS: Final = 2.0
"""Fewest standard deviations of the blocks that levels differ by: a series that wanders has no levels."""
_NORMAL: Final = 1.4826
"""Standard deviation of normal values / their median absolute deviation."""
_SHARP: Final = 4.0
_GRADUAL: Final = 0.8
"""A line describes a gradual change better: its residual is below this part of that of two levels."""


class Levels(NamedTuple):
    """A series as levels, one after another."""

    starts: list[int]
    """Index of the first value of each level; the first is 0."""
    medians: list[float]
    exact: list[bool]
    """Whether a level's start is where the values change, or only near it, because they vary too much."""
    gradual: bool
    """Whether the series moves along a line rather than in steps."""


def block_length(count: int) -> int:
    """Return the number of values per block of a series."""
    return max(1, -(-count // MOST_BLOCKS))


def block_medians(values: NDArray[np.floating[Any]], length: int) -> Floats:
    """Return the medians of blocks of `length` along the last axis; an incomplete last block is left out."""
    blocks = values.shape[-1] // length
    whole = values[..., : blocks * length].reshape(*values.shape[:-1], blocks, length)
    return np.asarray(np.median(whole, axis=-1) if length > 1 else whole[..., 0], np.float64)


def find_levels(values: Floats, least: float) -> Levels:
    """Return the levels of a series without NaN.

    Args:
        values: the series, shape (count,).
        least: smallest difference of two levels that follow each other.
    """
    length = block_length(len(values))
    blocks = block_medians(values, length)
    places = _merged(blocks, sorted(_splits(blocks, 0)), least)
    placed = _placed(values, [place * length for place in places])
    starts = [0, *(place for place, _ in placed)]
    medians = [float(np.median(values[a:b])) for a, b in pairwise([*starts, len(values)])]
    clear = (_is_clear(values, *around) for around in _around(starts, len(values)))
    exact = [True, *(only and sure for (_, only), sure in zip(placed, clear, strict=True))]
    return Levels(starts, medians, exact, bool(places) and _is_gradual(blocks, places))


def _around(starts: list[int], count: int) -> Iterator[tuple[int, int, int]]:
    """Yield the beginning of the level before each change, the change, and the end of the level after it."""
    yield from zip(starts, starts[1:], [*starts[2:], count], strict=False)


def deviation(values: Floats) -> float:
    """Return the standard deviation of `values` from their median, by the median absolute deviation."""
    return _NORMAL * float(np.median(np.abs(values - np.median(values)))) if len(values) else 0.0


def _splits(blocks: Floats, start: int) -> Iterator[int]:
    if len(blocks) < 3 * _SEGMENT:
        return
    place, p_value = pettitt_bound(blocks, _SEGMENT)
    if p_value > _LIMIT:
        return
    yield start + place
    yield from _splits(blocks[:place], start)
    yield from _splits(blocks[place:], start + place)


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
