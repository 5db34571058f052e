"""Changes of the step time, for a stretch or for good: when, by how much, and on which ranks."""

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from perfkit.base.statistics.series import Levels, block_length
from perfkit.records.aggregate import MAJORITY
from perfkit.records.per_run.monitor import StepTimeChange
from perfkit.subjects.monitor.course import Course
from perfkit.subjects.monitor.parts import part_of

_MOST_RANKS: Final = 16
_START: Final = 0.25
"""A decrease within this first part of a run is a warm-up."""
_FEWEST_GRADUAL: Final = 3
"""So many changes in a row in one direction are one gradual change."""


class _Move(NamedTuple):
    """The step from one level to the next."""

    place: int
    before_ns: float
    after_ns: float
    exact: bool
    start: int
    """First place of the level before."""
    end: int
    """Place after the level that follows."""


def find_changes(course: Course, rank_levels: Mapping[int, Levels]) -> list[StepTimeChange]:
    """Return the changes of the step time, in order.

    Args:
        course: the run.
        rank_levels: levels of the excess of ranks over the others, by row; of those that may have several.
    """
    moves = list(_moves(course.levels, len(course.longest_ns)))
    if course.levels.gradual:
        return [_gradual(course, moves)]
    found: list[StepTimeChange] = []
    for rises, group in groupby(moves, key=lambda move: move.after_ns > move.before_ns):
        same = list(group)
        if not rises and same[0] is moves[0]:
            same = [move for move in same if move.place >= _START * len(course.longest_ns)]
        if len(same) >= _FEWEST_GRADUAL:
            found.append(_gradual(course, same))
        else:
            found += [_change(course, move, rank_levels) for move in same]
    return found


def _moves(levels: Levels, count: int) -> Iterator[_Move]:
    ends = [*levels.starts[1:], count]
    for number in range(1, len(levels.starts)):
        before, after = levels.medians[number - 1 : number + 1]
        yield _Move(levels.starts[number], before, after, levels.exact[number], levels.starts[number - 1], ends[number])


def _gradual(course: Course, moves: list[_Move]) -> StepTimeChange:
    whole = course.levels.gradual
    start, end = (0, len(course.longest_ns)) if whole else (moves[0].place, moves[-1].end)
    tenth = max(1, (end - start) // 10)
    before, after = moves[0].before_ns, moves[-1].after_ns
    if whole:
        before, after = float(np.median(course.longest_ns[:tenth])), float(np.median(course.longest_ns[-tenth:]))
    last = moves[-1].place if not whole else end - 1
    return StepTimeChange(
        step=int(course.table.first[start]),
        exact=False,
        until_step=int(course.table.first[last]),
        before_ns=round(before),
        after_ns=round(after),
        part=part_of(course.table, [], slice(start, start + tenth), slice(end - tenth, end), after - before),
    )


def _change(course: Course, move: _Move, rank_levels: Mapping[int, Levels]) -> StepTimeChange:
    moved = move.after_ns - move.before_ns
    reach = max(2 * block_length(len(course.longest_ns)), 10)
    rows = _rows(rank_levels, move.place, moved, reach)
    place, exact = move.place, move.exact
    if rows:  # their own time changes without what delays all ranks
        place, exact = min(rows.values(), key=lambda one: not one[1])
    usual, other = slice(move.start, place), slice(place, move.end)
    return StepTimeChange(
        step=int(course.table.first[place]),
        exact=exact and int(course.table.counts[place]) == 1,
        before_ns=round(move.before_ns),
        after_ns=round(move.after_ns),
        ranks=[course.table.ranks[row] for row in list(rows)[:_MOST_RANKS]],
        rank_count=len(rows),
        part=part_of(course.table, list(rows), usual, other, moved),
    )


def _rows(rank_levels: Mapping[int, Levels], place: int, moved: float, reach: int) -> dict[int, tuple[int, bool]]:
    """Return the rows whose excess moves near a place by at least half as much, and where."""
    found: dict[int, tuple[int, bool]] = {}
    for row, levels in rank_levels.items():
        for start, exact, before, after in zip(
            levels.starts[1:], levels.exact[1:], levels.medians, levels.medians[1:], strict=False
        ):
            if abs(start - place) <= reach and (after - before) / moved >= MAJORITY:
                found[row] = start, exact
    return found
