"""The usual step time over the course of a run, and what of the run is compared at all."""

from typing import Final, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from perfkit.base.statistics.bootstrap import Floats
from perfkit.base.statistics.series import Levels, find_levels
from perfkit.records.monitor import KIND_NUMBERS
from perfkit.subjects.monitor.table import StepTable, Values, over_ranks

FEWEST_STEPS: Final = 24
"""With fewer steps, changes during a run are not reported."""
LEAST_CHANGE: Final = 0.05
"""Smallest change of the step time that counts, relative to the median step."""
_WINDOW: Final = 20
_SETTLED: Final = 1.1
_SLOW_START: Final = 1.5
_FIRST: Final = 10
"""Of the first so many steps, slow ones are a warm-up."""
_KINDS_LEFT_OUT: Final = [KIND_NUMBERS["cold"], KIND_NUMBERS["warmup"], KIND_NUMBERS["active"]]


class Course(NamedTuple):
    """The steps of a run that are compared, and their usual time."""

    table: StepTable
    longest_ns: Floats
    """Longest step over ranks, with pauses, shape (steps,)."""
    levels: Levels
    usual_ns: Floats
    """Median of the level that a step belongs to, or the line along which the level moves, shape (steps,)."""
    step_ns: float
    """Median of `longest_ns`."""


def plain_steps(table: StepTable) -> StepTable:
    """Return the table without cold steps and without those around and under the profiler, if others are left."""
    kinds = table.columns.get("kind")
    if kinds is None:
        return table
    plain = np.asarray(~np.isin(kinds, _KINDS_LEFT_OUT).any(axis=0))
    return table.between(plain) if plain.any() else table


def warmup_length(longest_ns: Floats) -> int:
    """Return the number of steps at the beginning before the step time has settled.

    It has where the median of 20 steps is at most 10 % above that of the second quarter of the run; if that takes more
    than the first quarter, it is no warm-up. Of the first ten steps, those up to the last that takes half as long again
    belong to it in any case: caches fill, and kernels are compiled.
    """
    quarter = len(longest_ns) // 4
    if quarter == 0:
        return 0
    usual = float(np.median(longest_ns[quarter : 2 * quarter]))
    slow = longest_ns > _SLOW_START * usual
    start = 0
    if quarter >= _WINDOW:
        medians = np.median(sliding_window_view(longest_ns[: quarter + _WINDOW - 1], _WINDOW), axis=1)
        settled = np.flatnonzero(medians <= _SETTLED * usual)
        start = int(settled[0]) if len(settled) else 0
    ends = np.flatnonzero(slow[: start + _WINDOW] if start else slow[: min(_FIRST, quarter)])
    return max(start, int(ends[-1]) + 1) if len(ends) else start


def settled_course(table: StepTable) -> Course | None:
    """Return the course of the steps of a table that contains no warm-up; None with too few steps."""
    if len(table.first) < FEWEST_STEPS:
        return None
    longest = over_ranks(table.wall_ns).astype(np.float64)
    median = float(np.median(longest))
    levels = find_levels(longest, LEAST_CHANGE * median)
    return Course(table, longest, levels, _usual(longest, levels), median)


def _usual(longest: Floats, levels: Levels) -> Floats:
    if not levels.gradual:
        return np.repeat(levels.medians, np.diff([*levels.starts, len(longest)]))
    at = np.arange(len(longest), dtype=np.float64)
    limited = np.minimum(longest, 2 * np.median(longest))  # single slow steps would pull the line
    slope, offset = np.polyfit(at, limited, 1)
    return np.asarray(slope * at + offset)


def median_of(values: Values) -> float:
    """Return the median of what is known; NaN if nothing is."""
    known = values[~np.isnan(values)]
    return float(np.median(known)) if known.size else float("nan")
