"""Changes of the step time, for a stretch or for good; and steps that take much longer: every n-th, and single ones."""

import math
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from perfkit.base.statistics.bootstrap import Floats
from perfkit.base.statistics.series import Levels, Period, block_length, find_periods
from perfkit.records.aggregate import MAJORITY
from perfkit.records.per_run.monitor import PeriodicStall, SlowStep, StepTimeChange
from perfkit.subjects.monitor.course import Course
from perfkit.subjects.monitor.late import only_rank, part_of
from perfkit.subjects.monitor.table import Bools, Ints, Values

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


MOST_SLOW: Final = 100
_LEAST_STALL: Final = 0.1
"""Smallest excess of a stall, relative to the usual step."""
_LEAST_SLOW: Final = 1.0
"""The same of a single slow step: it takes more than twice as long."""
_STALL_TAIL: Final = 0.02
"""Share of steps that may exceed the limit of stalls by chance, if excesses decay exponentially."""
_SLOW_TAIL: Final = 0.001
"""Number of steps of the run that may exceed the limit of slow steps, in the same way."""
_QUANTILE: Final = 90
_LOW_QUANTILE: Final = 25
_LONG: Final = 1.5
"""Steps that take so many times the usual one are told as a share of the run if they are frequent."""
_OFTEN: Final = 8
"""Of stalls that recur after fewer steps, only those that are so long count: others are patterns of accumulation."""
_SPARSE: Final = 4
"""A run whose step numbers span more than so many times its steps is not searched for periods."""
_MOST_SEARCHED: Final = 4_000_000
"""Only the newest so many step numbers are searched: memory for each of them is needed, about 100 bytes."""
_RARE: Final = 0.25
"""Largest share of records of several steps that may stall: each logs one of them, and in more, stalls hide others."""


class Stalls(NamedTuple):
    """What was found."""

    periodic: list[PeriodicStall]
    slow: list[SlowStep]
    """In order of the steps; the longest `MOST_SLOW`."""
    slow_count: int


class LongSteps(NamedTuple):
    """How uneven the steps are that were not rolled up."""

    single: int
    """Number of these steps."""
    longer: int
    """Those of them that take more than 1.5 times the usual step."""
    times: float | None
    """Median of how many times it they take; None without any."""


class _Steps(NamedTuple):
    """The longest step of each column of a table."""

    number: Ints
    extra_ns: Floats
    """How much longer than usual it took."""


def find_stalls(course: Course, excess_ns: Values | None) -> Stalls:
    """Return the periodic stalls and the slow steps of a run.

    Args:
        course: the run.
        excess_ns: excess of each rank's own time over the median of the others, shape (ranks, steps); None if unknown.
    """
    steps = _longest_steps(course)
    excess = course.longest_ns - course.usual_ns
    scale = _scale(excess)
    limit = np.maximum(_LEAST_STALL * course.usual_ns, min(scale, _scale_below(excess)) * math.log(1 / _STALL_TAIL))
    counts = course.table.counts
    events = _rare(steps.extra_ns > limit, counts)
    is_dense = int(steps.number[-1] - steps.number[0]) < _SPARSE * int(counts.sum())
    periods = _periods(steps.number, events) if is_dense else []
    periods = [period for period in periods if period.period >= _OFTEN or _is_long(course, steps, period)]
    stalled = np.zeros(len(steps.number), bool)
    for period in periods:
        stalled[period.places] = True
    periodic = [_stall(course, excess_ns, steps, period) for period in _without_echoes(periods)]
    high = scale * math.log(len(steps.number) / _SLOW_TAIL)
    slow = ~stalled & _rare(steps.extra_ns > np.maximum(_LEAST_SLOW * course.usual_ns, high), counts)
    groups = _groups(steps, slow)
    longest = sorted(groups, key=lambda group: -float(steps.extra_ns[group].max()))[:MOST_SLOW]
    singles = [_slow(course, excess_ns, steps, group) for group in longest]
    return Stalls(
        sorted(periodic, key=lambda one: one.first_step),
        sorted(singles, key=lambda one: one.first_step),
        len(groups),
    )


def long_steps(course: Course) -> LongSteps:
    """Return how many steps take more than 1.5 times the usual one, of those that were not rolled up."""
    single = course.table.counts == 1
    times = course.longest_ns[single] / np.maximum(course.usual_ns[single], 1.0)
    longer = times[times > _LONG]
    return LongSteps(len(times), len(longer), float(np.median(longer)) if len(longer) else None)


def _longest_steps(course: Course) -> _Steps:
    """Return number and excess of the longest step of each column; of a rolled-up one, without pauses."""
    table, single = course.table, course.table.counts == 1
    number, wall = table.first.copy(), course.longest_ns.copy()
    if not single.all():
        longest, offset = (table.columns[name][:, ~single] for name in ("longest_ns", "longest_offset"))
        slowest = np.nan_to_num(longest, nan=-1).argmax(axis=0), np.arange(longest.shape[1])
        wall[~single] = longest[slowest]
        number[~single] += offset[slowest].astype(np.int64)
    return _Steps(number, wall - course.usual_ns)


def _scale(excess: Floats) -> float:
    """Return the decay constant of an exponential tail through the median and the 90 % quantile of the excess."""
    middle, high = np.percentile(excess, [50, _QUANTILE])
    return float(high - middle) / math.log(0.5 / (1 - _QUANTILE / 100))


def _scale_below(excess: Floats) -> float:
    """Return the decay constant of the same tail by the quarter below the median, which no stalls reach."""
    low, middle = np.percentile(excess, [_LOW_QUANTILE, 50])
    return float(middle - low) / math.log((1 - _LOW_QUANTILE / 100) / 0.5)


def _rare(events: Bools, counts: Ints) -> Bools:
    """Return events without those among equally many steps that were rolled up, of which many records have one."""
    kept = events.copy()
    for count in np.unique(counts[events & (counts > 1)]):
        same = counts == count
        if events[same].mean() > _RARE:
            kept[same] = False
    return kept


def _periods(numbers: Ints, events: Bools) -> list[Period]:
    """Return the periods of events among numbered steps, with their places among the columns."""
    first = int(np.searchsorted(numbers, numbers[-1] - _MOST_SEARCHED, side="right"))
    offsets = numbers[first:] - numbers[first]
    by_number = np.zeros(int(offsets.max()) + 1, bool)
    by_number[offsets[events[first:]]] = True
    return [
        period._replace(places=first + np.searchsorted(offsets, period.places)) for period in find_periods(by_number)
    ]


def _is_long(course: Course, steps: _Steps, period: Period) -> bool:
    """Return whether a period's steps take more than 1.5 times the usual one, in the median."""
    return bool(np.median(steps.extra_ns[period.places] / course.usual_ns[period.places]) > _LONG - 1)


def _without_echoes(periods: list[Period]) -> list[Period]:
    """Return the periods without those that follow another of the same length by one step.

    Where a rank stalls after its last collective, the others wait for it in the next step.
    """
    kept: list[Period] = []
    for period in sorted(periods, key=lambda one: int(one.places[0])):
        phases = [(one.period, int(one.places[0]) % one.period) for one in kept]
        if (period.period, (int(period.places[0]) - 1) % period.period) not in phases:
            kept.append(period)
    return kept


def _stall(course: Course, excess_ns: Values | None, steps: _Steps, period: Period) -> PeriodicStall:
    places = period.places
    row = only_rank(excess_ns, places, steps.extra_ns[places])
    extra = float(np.median(steps.extra_ns[places]))
    usual = np.ones(len(steps.number), bool)
    usual[places] = False
    return PeriodicStall(
        period=period.period,
        first_step=int(steps.number[places[0]]),
        last_step=int(steps.number[places[-1]]),
        count=len(places),
        expected=period.expected,
        extra_ns=round(extra),
        rank=None if row is None else course.table.ranks[row],
        part=part_of(course.table, [] if row is None else [row], usual, places, extra),
    )


def _groups(steps: _Steps, slow: Bools) -> list[Ints]:
    """Return the places of slow steps, those in a row together."""
    places = np.flatnonzero(slow)
    if not len(places):
        return []
    return list(np.split(places, np.flatnonzero(np.diff(steps.number[places]) != 1) + 1))


def _slow(course: Course, excess_ns: Values | None, steps: _Steps, places: Ints) -> SlowStep:
    worst = places[[int(steps.extra_ns[places].argmax())]]
    is_single = int(course.table.counts[worst[0]]) == 1
    row = only_rank(excess_ns, places[:1], steps.extra_ns[worst]) if is_single else None
    extra, usual = float(steps.extra_ns[worst[0]]), float(course.usual_ns[worst[0]])
    others = np.ones(len(steps.number), bool)
    others[places] = False
    rows = [] if row is None else [row]
    return SlowStep(
        first_step=int(steps.number[places[0]]),
        last_step=int(steps.number[places[-1]]),
        wall_ns=round(usual + extra),
        usual_ns=round(usual),
        rank=None if row is None else course.table.ranks[row],
        part=part_of(course.table, rows, others, worst, extra) if is_single else None,
    )
