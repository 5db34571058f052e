"""Which rank of a script failed first: the one that has lost a connection, or the one that is no longer there."""

import time
from pathlib import Path
from typing import Final, NamedTuple

from perfkit.base.formatting import text_of
from perfkit.base.polling import POLL_S
from perfkit.errors import RunError
from perfkit.record.endings import TerminatedError, is_lost_connection
from perfkit.record.script.manifest_assembly import read_exit_records
from perfkit.record.script.rank_marks import ended_ranks
from perfkit.storage.run_folder import read_failure

_WAIT_S: Final = 0.5
"""How long to look for another cause: a process closes its connections shortly before it has ended."""


class Cause(NamedTuple):
    """The rank that failed first, and why."""

    rank: int
    error: BaseException
    diagnosis: str = ""
    """Which ranks waited for which; empty if unknown. It is part of the error's text too."""


def find_first_cause(folder: Path, rank: int, error: BaseException) -> Cause:
    """Return the first cause of `error`, which has ended the script on `rank`.

    If `rank` has lost a connection, and another rank had ended by then, that end comes first in time.
    """
    own = Cause(rank, error)
    if isinstance(error, TerminatedError):
        return cause_of_end(folder, rank, error)
    if not is_lost_connection(text_of(error)):
        return own
    deadline = time.monotonic() + _WAIT_S
    while read_failure(folder) is None and time.monotonic() < deadline:
        cause = _peer_that_left(folder, rank) or _peer_that_is_gone(folder, rank, "lost its connection")
        if cause is not None:
            return cause
        time.sleep(POLL_S)
    return own


def cause_of_end(folder: Path, rank: int, error: BaseException) -> Cause:
    """Return why `rank` ends at once: because of another that is gone, if it was sent SIGTERM, as launchers do then.

    A rank that perfkit sees end by SIGTERM records that before, so that another one without a record was first.
    """
    gone = _peer_that_is_gone(folder, rank, "was ended by SIGTERM") if isinstance(error, TerminatedError) else None
    return gone or Cause(rank, error)


def _peer_that_left(folder: Path, rank: int) -> Cause | None:
    records = [left for left in read_exit_records(folder) if left.ended and left.record.rank != rank]
    if not records:
        return None
    left = min(records, key=lambda each: each.code == 0)
    steps = len(left.record.step_wall_ns)
    how = f"ended with exit code {left.code} after {steps} timed steps, before rank {rank} lost its connection"
    return Cause(left.record.rank, RunError(how))


def _peer_that_is_gone(folder: Path, rank: int, then: str) -> Cause | None:
    codes = {left.record.rank: left.code for left in read_exit_records(folder) if left.ended}
    failed = [gone for gone, code in codes.items() if code and gone != rank]
    if failed:  # on another host, perhaps
        return Cause(failed[0], RunError(f"ended with exit code {codes[failed[0]]}, before rank {rank} {then}"))
    # One that has ended well is no reason to end another.
    gone = next((gone for gone in ended_ranks(folder, rank) if gone not in codes), None)
    how = f"was killed, or ended without a message, before rank {rank} {then}"
    return None if gone is None else Cause(gone, RunError(how))
