"""What the course of a monitored run shows, and losses that are not a number."""

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.records.common import Observation
from perfkit.records.monitor import LOSS_GIVEN
from perfkit.records.per_run.monitor import MonitorSummary

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
