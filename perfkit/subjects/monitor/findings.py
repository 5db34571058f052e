"""What the course of a monitored run shows."""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Final

from perfkit.records.common import Observation
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
