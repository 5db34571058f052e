"""Ranks that the others had to wait for, over a whole run (metrics.md section 26).

It is the model of section 5, asked about blocks of steps: of each stretch in which the level of a rank's excess does
not change, whether all of them are late, and of all steps, in which single ones a rank stands out.
"""

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from perfkit.base.statistics.bootstrap import Floats
from perfkit.base.statistics.series import Levels, block_length, block_medians, deviation, find_levels
from perfkit.engine.ranks.delay import LEAST_LAG, MANY
from perfkit.engine.ranks.lateness import excess, surely_late
from perfkit.engine.ranks.single_steps import late_often
from perfkit.records.aggregate import MAJORITY
from perfkit.records.cross_rank import FEWEST_COMPARED_STEPS
from perfkit.records.per_run.monitor import LateRank, StepPart
from perfkit.subjects.monitor.course import Course, median_of
from perfkit.subjects.monitor.table import PARTS, Bools, Ints, StepTable, Values

_MOSTLY: Final = 0.8
_MOST_OTHERS: Final = 32
"""Ranks that a late one is compared with, part by part."""


def part_of(
    table: StepTable, ranks: list[int], usual: slice | Bools | Ints, other: slice | Bools | Ints, extra_ns: float
) -> StepPart | None:
    """Return the part that has at least half of `extra_ns`, the difference of some steps from usual ones.

    Args:
        table: the steps.
        ranks: rows to look at; empty for all. Of several, the median counts.
        usual: places of steps that take the usual time.
        other: places of the steps that take `extra_ns` longer, or less if it is negative.
        extra_ns: the difference.
    """
    rows = ranks or list(range(len(table.ranks)))
    parts = dict(PARTS)
    if not ranks:
        parts["collectives"] = "collective_ns"
    shares = {part: _difference(table, column, rows, usual, other) / extra_ns for part, column in parts.items()}
    known = {part: share for part, share in shares.items() if share >= MAJORITY}
    # Collectives are waited for within the other parts: where they explain it, these do not.
    if "collectives" in known:
        return "collectives"
    return max(known, key=lambda part: known[part], default=None)


def _difference(
    table: StepTable, column: str, rows: list[int], usual: slice | Bools | Ints, other: slice | Bools | Ints
) -> float:
    return median_of(
        np.array([_median(table, column, row, other) - _median(table, column, row, usual) for row in rows])
    )


def _median(table: StepTable, column: str, row: int, places: slice | Bools | Ints) -> float:
    """Return the median of a part of the step on one rank; of backward passes without waiting for collectives."""
    values = table.columns.get(column)
    if values is None:
        return float("nan")
    chosen = values[row, places]
    if column == PARTS["backward"] and (waits := table.columns.get("collective_ns")) is not None:
        chosen = chosen - np.nan_to_num(waits[row, places])
    return median_of(chosen)


def late_part(table: StepTable, row: int, late: Bools, lag_ns: float) -> StepPart | None:
    """Return the part of the step in which a late rank has at least half of its lag over the others.

    Args:
        table: the steps.
        row: the late rank.
        late: in which steps it is late, shape (steps,).
        lag_ns: median of its excess in them.
    """
    others = [other for other in range(len(table.ranks)) if other != row][:_MOST_OTHERS]
    found: dict[StepPart, float] = {}
    for part, column in PARTS.items():
        usual = median_of(np.array([_median(table, column, other, late) for other in others]))
        share = (_median(table, column, row, late) - usual) / lag_ns
        if share >= MAJORITY:
            found[part] = share
    return max(found, key=lambda part: found[part], default=None)


def only_rank(excess_ns: Values | None, places: Ints, extra_ns: Values) -> int | None:
    """Return the row that alone exceeds the others in most of some steps; None if there is none, or it is unknown.

    Args:
        excess_ns: excess of each rank's own time over the median of the others, shape (ranks, steps); None if unknown.
        places: the steps, shape (n,).
        extra_ns: what they take more than usual, shape (n,).
    """
    if excess_ns is None or not len(places):
        return None
    late = excess_ns[:, places] >= MAJORITY * extra_ns
    alone = late & (late.sum(axis=0) == 1)
    share = alone.mean(axis=1)
    row = int(share.argmax())
    return row if share[row] >= _MOSTLY else None


MOST_LATE: Final = 64
_MOST_CANDIDATES: Final = 256
_SHORTEST: Final = 8
"""Blocks of the shortest stretch."""
FALSE_ALARMS: Final = 0.001
"""Nominal probability that chance makes any rank of a run late: logs are long, and are read again and again."""
_OFTEN: Final = 0.02
"""Least share of steps in which a rank is late now and then."""
_DEVIATIONS: Final = 6.0
"""Those steps exceed so many standard deviations of the rank's excess."""
_MORE_THAN_OTHERS: Final = 3.0
"""And are so many times as frequent as on the median of the other ranks."""


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
    width = min(_SHORTEST, blocks.shape[1])
    highest = np.abs((sums[:, width:] - sums[:, :-width]) / width).max(axis=1)
    rows = np.flatnonzero(highest >= least / 2)
    rows = rows[np.argsort(-highest[rows], kind="stable")[:_MOST_CANDIDATES]]
    return {int(row): find_levels(excess_ns[row].astype(np.float64), least) for row in rows}


def find_late_ranks(course: Course, own_ns: Values, excess_ns: Values, levels: dict[int, Levels]) -> Lateness:
    """Return the ranks that are late over a stretch of the run, or now and then.

    Args:
        course: the run.
        own_ns: each rank's own time, shape (ranks, steps).
        excess_ns: its excess over the median of the others.
        levels: what `rank_levels` returns.
    """
    blocks = block_medians(own_ns if levels else own_ns[:, :0], block_length(own_ns.shape[1]))
    late = {row: _late_in_stretches(course, excess_ns[row], blocks, row, own) for row, own in levels.items()}
    found = {row: one for row, one in late.items() if one is not None}
    for row, often in _now_and_then(course, excess_ns):
        if row not in found:
            found[row] = _late(course, row, excess_ns[row], often, slice(None))
    ordered = sorted(found.values(), key=lambda one: (-one.lag_ns * one.late_steps, one.rank))
    return Lateness(ordered[:MOST_LATE], len(ordered))


def _late_in_stretches(course: Course, excess: Values, blocks: Floats, row: int, levels: Levels) -> LateRank | None:
    """Return a rank if its excess is large enough on one of its levels, and beyond chance in the blocks of this one."""
    length, least = block_length(len(excess)), LEAST_LAG * course.step_ns
    tail = FALSE_ALARMS / (len(course.table.ranks) * len(levels.starts))
    late = []
    for start, end in pairwise([*levels.starts, len(excess)]):
        part = blocks[:, -(-start // length) : end // length]
        is_long = part.shape[1] >= FEWEST_COMPARED_STEPS and float(np.median(excess[start:end])) >= least
        if is_long and surely_late(part, tail, np.array([row]))[0]:
            late.append((start, end))
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


def _now_and_then(course: Course, excess_ns: Values) -> list[tuple[int, Bools]]:
    """Return the rows that are often late by far more than their excess varies, and which steps those are."""
    known = ~np.isnan(course.table.columns["step_ns"])
    far = np.zeros(excess_ns.shape, np.bool_)
    for row, has in enumerate(known):
        limit = max(LEAST_LAG * course.step_ns, _DEVIATIONS * deviation(excess_ns[row, has].astype(np.float64)))
        far[row] = (excess_ns[row] > limit) & has
    count, steps = far.sum(axis=1), np.maximum(known.sum(axis=1), 1)
    usual = count / steps - excess(count / steps)
    least = np.maximum(MANY, steps * np.maximum(_OFTEN, _MORE_THAN_OTHERS * usual))
    return [(row, far[row]) for row in np.flatnonzero(late_often(count, least, len(far))).tolist()]


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
