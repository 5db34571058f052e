"""Watches the steps of a script's rank, and explains why ranks have lost each other."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from perfkit.base.formatting import text_of
from perfkit.base.polling import wait_until
from perfkit.errors import RunError
from perfkit.options.script import ScriptConfig
from perfkit.record.endings import TerminatedError, is_lost_connection
from perfkit.record.hangs.processes import absent_ranks, silent_ranks
from perfkit.record.hangs.report import HangReporter, diagnose_lost_ranks
from perfkit.record.hangs.step_watch import StepWatch
from perfkit.record.script.first_cause import Cause
from perfkit.record.script.manifest_assembly import read_exit_records
from perfkit.record.script.rank_marks import joined_processes
from perfkit.storage.run_folder import read_failure

_PEERS_WAIT_S: Final = 3.0
"""How long to wait for what other ranks leave when connections were lost: `-n` ends them after six seconds."""


_TURN: Final = ".explains"


class ScriptHangWatch(StepWatch):
    """The step watch of a script's rank."""

    def __init__(
        self, folder: Path, rank: int, world_size: int, config: ScriptConfig, is_busy: Callable[[], bool]
    ) -> None:
        reporter = HangReporter(rank, config.on_hang, self._find_absent, lambda: joined_processes(folder))
        super().__init__(
            folder,
            rank,
            world_size,
            config.hang_after_s,
            reporter.report,
            reporter.end_with_others,
            is_busy=is_busy,
            absent=self._find_absent,
        )

    def explain(self, cause: Cause, error: BaseException) -> Cause:
        """Return the cause with what the ranks waited for, if a lost connection is why the script has ended.

        Args:
            error: What has ended it on this rank. If that is a signal, nothing is explained: it has most likely ended
                other ranks too, and such a rank no longer answers what it does.
        """
        lost = isinstance(cause.error, RunError) or is_lost_connection(text_of(cause.error))
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
