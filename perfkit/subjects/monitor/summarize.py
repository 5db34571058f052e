"""Sums up the step logs of a run."""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.base.statistics.series import block_length
from perfkit.engine.ranks.lateness import excess
from perfkit.records.common import Observation
from perfkit.records.monitor import LOSS_GIVEN
from perfkit.records.per_run.monitor import EarlyEnd, MonitorSummary, StepTimeCurve
from perfkit.subjects.monitor.course import Course, plain_steps, settled_course, warmup_length
from perfkit.subjects.monitor.late import MOST_LATE, Lateness, find_late_ranks, rank_levels
from perfkit.subjects.monitor.stalls import Stalls, find_changes, find_stalls, long_steps
from perfkit.subjects.monitor.table import StepTable, Values, over_ranks, own_ns

_FEWEST_LACKING: Final = 10
"""A log that lacks so many of the last steps ends early: ranks that wait for each other are at most a step apart, and
reading the logs of a run that goes on takes a moment."""
_QUANTILES: Final = (0.1, 0.5, 0.9)


_NO_STALLS: Final = Stalls([], [], 0)


class LogFacts(NamedTuple):
    """What the logs of all ranks contain besides step times."""

    world_size: int
    span_ns: int
    peak_allocated_bytes: int | None
    peak_rss_bytes: int | None
    first_loss: float | None
    last_loss: float | None


def summarize(table: StepTable, facts: LogFacts) -> MonitorSummary:
    """Return the analysis of a run's logs; `table` has all steps (see `align`)."""
    plain, longest = _timed_steps(table)
    warmup = warmup_length(longest)
    settled = plain.between(slice(warmup, None))
    course = settled_course(settled)
    early = _early_ends(table)
    return MonitorSummary(
        ranks=len(table.ranks),
        first_step=int(table.first[0]),
        last_step=int(table.first[-1] + table.counts[-1]) - 1,
        steps=int(table.counts.sum()),
        rolled_up_steps=int(table.counts[table.counts > 1].sum()),
        left_out_steps=int(table.counts.sum() - plain.counts.sum()),
        warmup_steps=int(plain.counts[:warmup].sum()),
        step_ns=round(float(np.average(longest[warmup:], weights=settled.counts))) if len(longest) else 0,
        data_share=_share(settled, "data_ns"),
        collective_share=_share(settled, "collective_ns"),
        pause_ns=_pauses(table),
        compared=course is not None,
        early_ends=early[:MOST_LATE],
        early_end_count=len(early),
        curve=curve(table),
        **facts._replace(world_size=max(facts.world_size, table.ranks[-1] + 1))._asdict(),
        **_find(course),
    )


def find_slow_steps(table: StepTable) -> Stalls:
    """Return the stalls and slow steps of a run of which only the times of its steps are known."""
    plain, longest = _timed_steps(table)
    course = settled_course(plain.between(slice(warmup_length(longest), None)))
    return find_stalls(course, None) if course else _NO_STALLS


def _timed_steps(table: StepTable) -> tuple[StepTable, NDArray[np.float64]]:
    """Return the plain steps whose time is known, and the time of each on its slowest rank."""
    plain = plain_steps(table)
    longest = over_ranks(plain.wall_ns).astype(np.float64)
    known = ~np.isnan(longest)
    return plain.between(known), longest[known]


def _find(course: Course | None) -> dict[str, Any]:
    """Return the fields of a summary about what the compared steps show; None without enough of them."""
    if course is None:
        return {
            "changes": [],
            "late_ranks": [],
            "late_rank_count": 0,
            "lateness_known": False,
            **_of_stalls(_NO_STALLS),
        }
    uneven, own = long_steps(course), own_ns(course.table)
    excess_ns = None if own is None else excess(own)
    levels = {} if excess_ns is None else rank_levels(course, excess_ns)
    late = Lateness([], 0) if own is None or excess_ns is None else find_late_ranks(course, own, excess_ns, levels)
    return {
        "changes": find_changes(course, levels),
        "single_steps": uneven.single,
        "long_step_count": uneven.longer,
        "long_step_times": uneven.times,
        "late_ranks": late.late,
        "late_rank_count": late.late_count,
        "lateness_known": own is not None,
        **_of_stalls(find_stalls(course, excess_ns)),
    }


def _of_stalls(found: Stalls) -> dict[str, Any]:
    return {"stalls": found.periodic, "slow_steps": found.slow, "slow_step_count": found.slow_count}


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


# ---- findings --------------------------------------------------------------------------------------------------------


EARLY_END: Final = "monitor_log_ends_early"


def monitor_findings(summary: MonitorSummary) -> Iterator[Observation]:
    """Yield what was found: changes of the step time, stalls, slow steps, late ranks, logs that end early."""
    for change, following in zip_longest(summary.changes, summary.changes[1:]):
        rank = change.ranks[0] if change.rank_count == 1 else None
        yield Observation("step_time_changed", {"change": change, "following": following}, rank=rank)
    for stall in summary.stalls:
        yield Observation("periodic_stalls", {"stall": stall}, rank=stall.rank)
    if summary.slow_steps:
        yield Observation("slow_steps", {"steps": summary.slow_steps, "count": summary.slow_step_count})
    if late := summary.late_ranks:
        only = late[0].rank if summary.late_rank_count == 1 else None
        yield Observation("rank_late_over_run", {"late": late, "count": summary.late_rank_count}, rank=only)
    if ends := summary.early_ends:
        count, only = summary.early_end_count, ends[0].rank if summary.early_end_count == 1 else None
        yield Observation(
            "monitor_log_ends_early", {"ends": ends, "count": count, "last_step": summary.last_step}, rank=only
        )


class BadLosses(NamedTuple):
    """The steps of a rank whose loss is not a number, of those with a known one."""

    first_step: int
    steps: int
    lasting: bool
    """Whether `first_step` begins a stretch up to the last known loss; otherwise a number follows at some step."""
    rolled_up: bool
    """Whether steps are logged together with others, whose mean is then not a number either."""
    or_before: bool
    """Whether it may have begun before `first_step`: nothing is known of the loss of the step before."""


def find_bad_losses(records: NDArray[np.void]) -> BadLosses | None:
    """Return the steps of a rank's log whose loss is not a number; None if all known losses are numbers."""
    rows = np.flatnonzero(records["flags"] & LOSS_GIVEN)
    known = records[rows]
    bad = ~np.isfinite(known["loss"])
    if not bad.any():
        return None
    lasting = bool(bad[-1])
    if lasting:
        bad[: np.flatnonzero(np.append(True, ~bad))[-1]] = False  # what is followed by a number
    found, row = known[bad], int(rows[bad][0])
    is_unknown = row - 1 not in rows if row else records["step"][0] > 0
    return BadLosses(
        first_step=int(found["step"][0]),
        steps=int(found["steps"].sum()),
        lasting=lasting,
        rolled_up=bool((found["steps"] > 1).any()),
        or_before=lasting and bool(is_unknown),
    )


def not_a_number(found: Mapping[int, BadLosses], ranks: int) -> Observation:
    """Return since when losses are not a number, or in how many steps; those up to the last known one count first.

    Args:
        found: What `find_bad_losses` has found, by rank, of at least one.
        ranks: Ranks with a log.
    """
    chosen = {rank: one for rank, one in found.items() if one.lasting} or found
    first = min(chosen.values(), key=lambda one: one.first_step)
    who = [rank for rank, one in chosen.items() if one.first_step == first.first_step]
    return Observation("loss_not_a_number", first._asdict() | {"ranks": [] if len(who) == ranks else who})
