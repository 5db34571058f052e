"""Watches the steps of a script's rank, and explains why ranks have lost each other: which one failed first."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from perfkit.base.formatting import text_of
from perfkit.base.polling import POLL_S, wait_until
from perfkit.errors import RunError
from perfkit.options.script import ScriptConfig
from perfkit.record.endings import TerminatedError, is_due_to_another_rank
from perfkit.record.hangs.report import DiagnosedWatch, diagnose_lost_ranks
from perfkit.record.process_stat import absent_ranks, silent_ranks
from perfkit.record.script.manifest_assembly import read_exit_records
from perfkit.record.script.rank_marks import ended_ranks, joined_processes
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
    if not is_due_to_another_rank(text_of(error)):
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


_PEERS_WAIT_S: Final = 3.0
"""How long to wait for what other ranks leave when connections were lost: `-n` ends them after six seconds."""


_TURN: Final = ".explains"


class ScriptHangWatch(DiagnosedWatch):
    """The step watch of a script's rank."""

    def __init__(
        self, folder: Path, rank: int, world_size: int, config: ScriptConfig, is_busy: Callable[[], bool]
    ) -> None:
        super().__init__(folder, rank, world_size, config, lambda: joined_processes(folder), is_busy, self._find_absent)

    def explain(self, cause: Cause, error: BaseException) -> Cause:
        """Return the cause with what the ranks waited for, if a lost connection is why the script has ended.

        Args:
            error: What has ended it on this rank. If that is a signal, nothing is explained: it has most likely ended
                other ranks too, and such a rank no longer answers what it does.
        """
        lost = isinstance(cause.error, RunError) or is_due_to_another_rank(text_of(cause.error))
        if self._world_size == 1 or not lost or read_failure(self._folder) is not None:
            return cause
        if isinstance(error, TerminatedError):
            self._let_another_explain()
            return cause
        try:
            (self._folder / _TURN).touch(exist_ok=False)
        except OSError:  # another rank was quicker
            self._let_another_explain()
            return cause
        why = self._diagnose()
        return Cause(cause.rank, RunError(f"{cause.error}; {why}"), why) if why else cause

    def _diagnose(self) -> str:
        """Return why ranks have lost each other; those that have not noticed it, and still wait, are asked."""
        try:
            request = self.ask()
        except OSError:
            return ""
        return diagnose_lost_ranks(
            self._folder,
            set(range(self._world_size)),
            request,
            absent=self._find_absent,
            silent=lambda: silent_ranks(joined_processes(self._folder)),
            wait_s=_PEERS_WAIT_S,
        )

    def forget_turn(self) -> None:
        """Remove what tells the other ranks that this one explains the failure, which is recorded by now."""
        (self._folder / _TURN).unlink(missing_ok=True)

    def _let_another_explain(self) -> None:
        """If another rank explains the failure, wait until it is recorded."""
        turn = self._folder / _TURN
        wait_until(lambda: not turn.exists() or read_failure(self._folder) is not None, 2 * _PEERS_WAIT_S)

    def _find_absent(self) -> dict[int, str]:
        left = {
            record.record.rank: f"has ended its script, with exit code {record.code}"
            for record in read_exit_records(self._folder)
            if record.ended
        }
        return absent_ranks(joined_processes(self._folder)) | left
