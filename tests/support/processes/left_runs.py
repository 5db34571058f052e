"""Marks of a run's rank 0, as it leaves them while it runs."""

import os
from pathlib import Path

import pytest

from perfkit.record.on_demand.mailbox import Mailbox, OpenMark
from perfkit.record.process_stat import process_identity, start_of


def mark_rank_0(run: Path, which: str) -> None:
    """Leave the mark of rank 0 that runs, has ended, ran on another host, or whose pid is another process's by now."""
    place, pid, started = process_identity()
    if not place:
        pytest.skip("this system has no pidfds")
    if which == "ended":
        pid = os.posix_spawn("/bin/true", ["true"], {})
        started = start_of(pid)
        os.waitpid(pid, 0)
    elif which == "of another host":
        place, pid = f"other {place}", 1 << 22
    elif which == "of a pid that is another's":
        started = f"{int(started) - 1}"
    Mailbox(run).open(OpenMark(host=place, pid=pid, started=started, poll_s=1))
