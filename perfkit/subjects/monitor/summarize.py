"""Sums up the step logs of a run."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.base.statistics.series import block_length
from perfkit.engine.ranks.lateness import excess
from perfkit.records.per_run.monitor import EarlyEnd, MonitorSummary, StepTimeChange, StepTimeCurve
from perfkit.subjects.monitor.changes import find_changes
from perfkit.subjects.monitor.course import Course, plain_steps, settled_course, warmup_length
from perfkit.subjects.monitor.late import MOST_LATE, Lateness, find_late_ranks, rank_levels
from perfkit.subjects.monitor.stalls import LongSteps, Stalls, find_stalls, long_steps
from perfkit.subjects.monitor.table import StepTable, Values, over_ranks, own_ns

_FEWEST_LACKING: Final = 10
"""A log that lacks so many of the last steps ends early: ranks that wait for each other are at most a step apart, and
reading the logs of a run that goes on takes a moment."""
_QUANTILES: Final = (0.1, 0.5, 0.9)


class LogFacts(NamedTuple):
    """What the logs of all ranks contain besides step times."""

    world_size: int
    span_ns: int
    peak_allocated_bytes: int | None
    peak_rss_bytes: int | None
    first_loss: float | None
    last_loss: float | None


class _Found(NamedTuple):
    changes: list[StepTimeChange]
    stalls: Stalls
    uneven: LongSteps
    lateness: Lateness
    lateness_known: bool


_NOTHING: Final = _Found([], Stalls([], [], 0), LongSteps(0, 0, None), Lateness([], 0), lateness_known=False)


def summarize(table: StepTable, facts: LogFacts) -> MonitorSummary:
    """Return the analysis of a run's logs; `table` has all steps (see `align`)."""
    plain, longest = _timed_steps(table)
    warmup = warmup_length(longest)
    settled = plain.between(slice(warmup, None))
    course = settled_course(settled)
    found = _find(course) if course else _NOTHING
    early = _early_ends(table)
    return MonitorSummary(
        ranks=len(table.ranks),
        world_size=max(facts.world_size, table.ranks[-1] + 1),
        first_step=int(table.first[0]),
        last_step=int(table.first[-1] + table.counts[-1]) - 1,
        steps=int(table.counts.sum()),
        rolled_up_steps=int(table.counts[table.counts > 1].sum()),
        left_out_steps=int(table.counts.sum() - plain.counts.sum()),
        warmup_steps=int(plain.counts[:warmup].sum()),
        span_ns=facts.span_ns,
        step_ns=round(float(np.average(longest[warmup:], weights=settled.counts))) if len(longest) else 0,
        data_share=_share(settled, "data_ns"),
        collective_share=_share(settled, "collective_ns"),
        pause_ns=_pauses(table),
        peak_allocated_bytes=facts.peak_allocated_bytes,
        peak_rss_bytes=facts.peak_rss_bytes,
        first_loss=facts.first_loss,
        last_loss=facts.last_loss,
        changes=found.changes,
        stalls=found.stalls.periodic,
        slow_steps=found.stalls.slow,
        slow_step_count=found.stalls.slow_count,
        single_steps=found.uneven.single,
        long_step_count=found.uneven.longer,
        long_step_times=found.uneven.times,
        late_ranks=found.lateness.late,
        late_rank_count=found.lateness.late_count,
        compared=course is not None,
        lateness_known=found.lateness_known,
        early_ends=early[:MOST_LATE],
        early_end_count=len(early),
        curve=curve(table),
    )


def find_slow_steps(table: StepTable) -> Stalls:
    """Return the stalls and slow steps of a run of which only the times of its steps are known."""
    plain, longest = _timed_steps(table)
    course = settled_course(plain.between(slice(warmup_length(longest), None)))
    return find_stalls(course, None) if course else _NOTHING.stalls


def _timed_steps(table: StepTable) -> tuple[StepTable, NDArray[np.float64]]:
    """Return the plain steps whose time is known, and the time of each on its slowest rank."""
    plain = plain_steps(table)
    longest = over_ranks(plain.wall_ns).astype(np.float64)
    known = ~np.isnan(longest)
    return plain.between(known), longest[known]


def _find(course: Course) -> _Found:
    own, uneven = own_ns(course.table), long_steps(course)
    if own is None:
        changes, stalls = find_changes(course, {}), find_stalls(course, None)
        return _Found(changes, stalls, uneven, Lateness([], 0), lateness_known=False)
    excess_ns = excess(own)
    levels = rank_levels(course, excess_ns)
    return _Found(
        find_changes(course, levels),
        find_stalls(course, excess_ns),
        uneven,
        find_late_ranks(course, own, excess_ns, levels),
        lateness_known=True,
    )


def _early_ends(table: StepTable) -> list[EarlyEnd]:
    rows = np.flatnonzero(table.ends <= table.ends.max() - _FEWEST_LACKING)
    ordered = rows[np.argsort(table.ends[rows], kind="stable")]
    return [EarlyEnd(rank=table.ranks[row], last_step=int(table.ends[row])) for row in ordered]


def _share(table: StepTable, column: str) -> float | None:
    """Return a column's share of the step time, over the ranks and steps where it is known; None if it is not."""
    values, steps = table.columns[column], table.columns["step_ns"]
    known = ~np.isnan(values) & ~np.isnan(steps)
    weights = np.broadcast_to(table.counts, values.shape)[known]
    total = float((steps[known].astype(np.float64) * weights).sum())
    return float((values[known].astype(np.float64) * weights).sum()) / total if total else None


def _pauses(table: StepTable) -> int | None:
    pauses = table.columns["pause_ns"]
    if np.isnan(pauses).all():
        return None
    return round(float(np.nansum(pauses.astype(np.float64) * table.counts, axis=1).max()))


def curve(table: StepTable) -> StepTimeCurve:
    """Return the step time over the run, in at most 400 blocks."""
    steps = len(table.first)
    size = block_length(steps)
    blocks = _in_blocks(table.wall_ns, size)
    known = (~np.isnan(blocks)).sum(axis=1)
    blocks.sort(axis=1)  # NaN come last
    rows = np.flatnonzero(known)
    low, median, high = (blocks[rows, np.rint(share * (known[rows] - 1)).astype(np.int64)] for share in _QUANTILES)
    longest = np.fmax(
        blocks[rows, known[rows] - 1], np.fmax.reduce(_in_blocks(table.columns["longest_ns"], size), 1)[rows]
    )
    return StepTimeCurve(
        steps=table.first[::size][rows].tolist(),
        low_ns=_whole(low),
        median_ns=_whole(median),
        high_ns=_whole(high),
        longest_ns=_whole(longest),
    )


def _in_blocks(values: Values, size: int) -> Values:
    """Return the values of all ranks by blocks of `size` steps, shape (blocks, ranks * size), filled up with NaN."""
    ranks, steps = values.shape
    blocks = -(-steps // size)
    padded = np.pad(values, ((0, 0), (0, blocks * size - steps)), constant_values=np.nan)
    return padded.reshape(ranks, blocks, size).transpose(1, 0, 2).reshape(blocks, ranks * size)


def _whole(values: Values) -> list[int]:
    return [round(float(value)) for value in values]
