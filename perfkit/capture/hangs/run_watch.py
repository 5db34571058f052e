"""The step watch of a rank whose run has told all ranks where each of them runs: a workload, or a user's own loop."""

from collections.abc import Callable
from pathlib import Path

from perfkit.capture.hangs.messages import count_messages
from perfkit.capture.hangs.processes import Places, absent_ranks, note_starts
from perfkit.capture.hangs.report import HangReporter, OnHang
from perfkit.capture.hangs.step_watch import StepWatch


def watch_run(
    folder: Path, rank: int, places: Places, limit_s: float | None, on_hang: OnHang, is_busy: Callable[[], bool]
) -> StepWatch:
    """Return the watch of the steps of this rank, not started yet.

    Args:
        folder: The run's folder.
        rank: This rank.
        places: Where all ranks run.
        limit_s: How long no step may end; None: the default.
        on_hang: Whether the run is then ended.
        is_busy: Whether this rank does what is no part of a step.
    """
    note_starts(places)
    if len(places) > 1:
        count_messages()
    reporter = HangReporter(rank, on_hang, lambda: absent_ranks(places), lambda: places)
    return StepWatch(
        folder,
        rank,
        len(places),
        limit_s,
        reporter.report,
        reporter.end_with_others,
        is_busy=is_busy,
        absent=lambda: absent_ranks(places),
    )
