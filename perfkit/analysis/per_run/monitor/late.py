"""Ranks that the others had to wait for, over a whole run (metrics.md section 26).

As in section 5, lateness is the excess of a rank's own time over the median of the others, step by step.
"""

import math
from itertools import pairwise
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from perfkit.analysis.per_run.monitor.course import Course
from perfkit.analysis.per_run.monitor.parts import late_part
from perfkit.analysis.per_run.monitor.table import Bools, Values
from perfkit.schema.per_run.monitor import LateRank
from perfkit.stats.bootstrap import Floats
from perfkit.stats.levels import Levels, block_length, block_medians, deviation, find_levels
from perfkit.stats.student_t import upper_quantile

LEAST_LAG: Final = 0.03
"""Smallest excess that counts, relative to the median step."""
MOST_LATE: Final = 64
_MOST_CANDIDATES: Final = 256
_FEWEST_BLOCKS: Final = 8
_FALSE_ALARMS: Final = 0.001
_OFTEN: Final = 0.02
_FEWEST_LATE: Final = 10
"""Least share of steps in which a rank is late now and then, and least number of them."""
_DEVIATIONS: Final = 6.0
"""Those steps exceed so many standard deviations of the rank's excess."""
_MORE_THAN_OTHERS: Final = 3.0
"""And are so many times as frequent as on the median rank."""


class Lateness(NamedTuple):
    """Which ranks were late."""

    late: list[LateRank]
    """By time lost, at most `MOST_LATE`."""
    late_count: int


def rank_levels(course: Course, excess_ns: Values) -> dict[int, Levels]:
    """Return the levels of the ranks whose excess may exceed `LEAST_LAG` for long, by row.

    Of many such ranks, those with the largest excess.
    """
    least = LEAST_LAG * course.step_ns
    blocks = block_medians(excess_ns, block_length(excess_ns.shape[1]))
    sums = np.cumsum(np.pad(blocks, ((0, 0), (1, 0))), axis=1)
    width = min(_FEWEST_BLOCKS, blocks.shape[1])
    highest = np.abs((sums[:, width:] - sums[:, :-width]) / width).max(axis=1)
    rows = np.flatnonzero(highest >= least / 2)
    rows = rows[np.argsort(-highest[rows], kind="stable")[:_MOST_CANDIDATES]]
    return {int(row): find_levels(excess_ns[row].astype(np.float64), least) for row in rows}


def find_late_ranks(course: Course, excess_ns: Values, levels: dict[int, Levels]) -> Lateness:
    """Return the ranks that are late over a stretch of the run, or now and then.

    Args:
        course: the run.
        excess_ns: excess of each rank's own time over the median of the others, shape (ranks, steps).
        levels: what `rank_levels` returns.
    """
    found = {row: one for row, own in levels.items() if (one := _late_in_stretches(course, excess_ns[row], row, own))}
    for row, late in _now_and_then(course, excess_ns):
        if row not in found:
            found[row] = _late(course, row, excess_ns[row], late, slice(None))
    ordered = sorted(found.values(), key=lambda one: (-one.lag_ns * one.late_steps, one.rank))
    return Lateness(ordered[:MOST_LATE], len(ordered))


def _late_in_stretches(course: Course, excess: Values, row: int, levels: Levels) -> LateRank | None:
    """Return a rank if its excess is large enough, beyond chance, on one of its levels."""
    ends = [*levels.starts, len(excess)]
    chances = len(course.table.ranks) * len(levels.starts)
    late = [
        (start, end)
        for start, end in pairwise(ends)
        if is_late(excess[start:end].astype(np.float64), LEAST_LAG * course.step_ns, chances, len(excess))
    ]
    if not late:
        return None
    (start, _), (_, end) = late[0], late[-1]
    numbers = course.table.first
    found = _late(course, row, excess, excess >= LEAST_LAG * course.step_ns, slice(start, end))
    return replace(
        found,
        first_step=int(numbers[start]) if start else None,
        last_step=int(numbers[end - 1] + course.table.counts[end - 1]) - 1 if end < len(excess) else None,
    )


def is_late(excess: Floats, least: float, chances: int, count: int) -> bool:
    """Return whether the median of a rank's excess is at least `least`, and positive beyond chance.

    Both Student's t-test of blocks of steps and their sign test must confirm it: of skewed times the mean exceeds the
    median of others on every rank.

    Args:
        excess: of the steps of one level.
        least: smallest median, ns.
        chances: number of levels of all ranks, any of which may be wrong with probability 0.1 % in all.
        count: number of steps of the run, which determines the length of the blocks.
    """
    blocks = block_medians(excess, block_length(count))
    if len(blocks) < _FEWEST_BLOCKS or float(np.median(excess)) < least:
        return False
    root, tail = math.sqrt(len(blocks)), _FALSE_ALARMS / chances
    t = float(blocks.mean()) * root > upper_quantile(tail, len(blocks) - 1) * max(float(blocks.std(ddof=1)), 1.0)
    positive = float(np.mean(blocks > 0) - 0.5) * 2 * root
    return t and positive > NormalDist().inv_cdf(1 - tail)


def _now_and_then(course: Course, excess_ns: Values) -> list[tuple[int, Bools]]:
    """Return the rows that are often late by far more than their excess varies, and which steps those are."""
    known = ~np.isnan(course.table.columns["step_ns"])
    deviations = np.array(
        [
            deviation(row[has].astype(np.float64)) if has.any() else 0.0
            for row, has in zip(excess_ns, known, strict=True)
        ]
    )
    limits = np.maximum(LEAST_LAG * course.step_ns, _DEVIATIONS * deviations)
    late = (excess_ns > limits[:, np.newaxis]) & known
    counts = late.sum(axis=1)
    share = counts / np.maximum(known.sum(axis=1), 1)
    least = max(_OFTEN, _MORE_THAN_OTHERS * float(np.median(share)))
    rows = np.flatnonzero((share >= least) & (counts >= _FEWEST_LATE))
    return [(int(row), late[row]) for row in rows]


def _late(course: Course, row: int, excess: Values, is_late: Bools, told: slice) -> LateRank:
    """Return a rank that is late in some steps, of which those count that lie in the part of the run that is told."""
    late = np.zeros(len(excess), bool)
    late[told] = is_late[told]
    lag = float(np.median(excess[late]))
    counts = course.table.counts
    known = ~np.isnan(course.table.columns["step_ns"][row, told])
    return LateRank(
        rank=course.table.ranks[row],
        late_steps=int(counts[late].sum()),
        steps=int(counts[told][known].sum()),
        lag_ns=round(lag),
        part=late_part(course.table, row, late, lag),
    )
