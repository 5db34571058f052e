"""Ranks that a launcher has started with one command line."""

import os
import time

from perfkit.errors import LaunchEnvironmentError, UsageError
from perfkit.record.distributed.launcher_env import FAILURE_GRACE_S, detect_rank, needs_mpi
from perfkit.record.lifecycle.local_launch import is_child


def leave_error_to_rank_0() -> None:
    """End every other rank: all have the same command line, so rank 0 reports its error."""
    if is_child() or needs_mpi(os.environ) or "RANK" in os.environ:
        try:
            rank = detect_rank(os.environ).rank
        except LaunchEnvironmentError:
            return
        if rank > 0:
            time.sleep(FAILURE_GRACE_S)  # a launcher may kill rank 0 as soon as this one has ended
            raise SystemExit(UsageError.exit_code)
