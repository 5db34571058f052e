"""Failure of a run: the first rank that fails reports the error, the others exit without a message, and none hangs.

The first rank to create `failure.json` in the run's folder is the first failure. A rank that fails afterwards fails
because of it ("connection closed by peer"), and its error is not shown.
"""

import signal
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Final, NoReturn, Self

from perfkit.base.formatting import text_of
from perfkit.base.polling import wait_until
from perfkit.base.process import EXIT_INTERRUPTED, raise_keyboard_interrupt
from perfkit.errors import PerfkitError, RunError, StoreError
from perfkit.record.distributed.launcher_env import FAILURE_GRACE_S
from perfkit.record.distributed.store_barrier import PeerFailedError
from perfkit.record.endings import HangupError, TerminatedError, is_due_to_another_rank
from perfkit.record.lifecycle.launched_runs import remove_temporary
from perfkit.record.lifecycle.local_launch import is_child
from perfkit.record.lifecycle.parent_watch import before_end_with_parent, exit_now
from perfkit.record.messages import one_line, print_error, print_warning
from perfkit.records.manifest import Failure
from perfkit.storage.run_folder import claim_failure, fail, read_failure, read_manifest

_CAUSE_WAIT_S: Final = 0.5
"""How long a rank that received a signal, or lost a connection, waits for the failure of another that caused it."""


class FailureGuard:
    """Context manager around a rank's run: turns an error into one line, a failed manifest and an exit code.

    Args:
        world_size: Number of ranks. A single rank raises the error; one of several ends its process at once, since an
            orderly exit from the process group can wait for ranks that are gone.
    """

    def __init__(self, rank: int, world_size: int, debug: bool) -> None:
        self._rank = rank
        self._world_size = world_size
        self._debug = debug
        self.folder: Path | None = None
        self.stop: Callable[[BaseException], None] | None = None
        """Stops the recording, once it exists."""
        self.run_failed: Callable[[], None] | None = None
        """Called instead, without waiting for anything, if there are several ranks: the first to fail may be gone."""
        self.manifest_fields: Callable[[], dict[str, Any]] | None = None
        """Returns this rank's fields of the manifest, without waiting for another rank or a device."""
        self.current_activity: Callable[[], str] | None = None

    def __enter__(self) -> Self:
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        signal.signal(signal.SIGTERM, _terminated)
        if self._before[signal.SIGHUP] is not signal.SIG_IGN:  # as under nohup
            signal.signal(signal.SIGHUP, _terminated)
        raise_keyboard_interrupt()
        fail_with_parent(lambda: self.folder, self._rank)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if error is None:
            return
        if isinstance(error, SystemExit):
            error = RunError(f"exited (code {error.code or 0}) in {self._activity}, before the run was over")
        first = not isinstance(error, PeerFailedError)
        signalled = isinstance(error, (KeyboardInterrupt, TerminatedError))
        if (signalled or is_due_to_another_rank(text_of(error))) and self._world_size > 1:
            self._wait_for_peer_failure()
        if self.folder is not None and first:
            first = record_failure(self.folder, self._rank, error, self.manifest_fields)
        elif signalled:
            first = self._rank == 0  # all ranks received the signal, and one reports it
        if self._world_size > 1:
            self._exit_process(error, first)
        if self.stop is not None:
            self.stop(error)
        if not isinstance(error, (PerfkitError, KeyboardInterrupt)):
            raise RunError(f"rank {self._rank}: {one_line(error)}{self._when(error)}") from error

    @property
    def _activity(self) -> str:
        return self.current_activity() if self.current_activity else "the preparation"

    def _when(self, error: BaseException) -> str:
        """Return in which step an error of the program was raised; perfkit's own say it themselves."""
        return "" if isinstance(error, (PerfkitError, KeyboardInterrupt)) else f" (in {self._activity})"

    def _wait_for_peer_failure(self) -> None:
        """Let the watchdog record its failure first: a rank that has died comes before what that does to the others.

        Further signals are ignored meanwhile: the first one is being handled.
        """
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        wait_until(lambda: self.folder is not None and read_failure(self.folder) is not None, _CAUSE_WAIT_S)

    def _exit_process(self, error: BaseException, first: bool) -> NoReturn:
        if self._debug:
            traceback.print_exception(error)
        if self.run_failed is not None:
            self.run_failed()
        if isinstance(error, KeyboardInterrupt) and is_child():
            exit_now(-signal.SIGINT)  # the parent reports it
        if first:
            # Most likely all ranks received the signal: it is not a failure of this one, which was merely the first.
            signalled = isinstance(error, (KeyboardInterrupt, TerminatedError))
            who = "" if signalled else f"rank {self._rank}: "
            print_error(f"{who}{one_line(error)}{self._when(error)}")
        else:
            # A launcher may kill all ranks as soon as one has ended: let the first failure be reported before.
            time.sleep(FAILURE_GRACE_S)
        own = error.exit_code if isinstance(error, PerfkitError) else 1
        exit_now(EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else own)


def record_failure(
    folder: Path, rank: int, error: BaseException, manifest_fields: Callable[[], dict[str, Any]] | None
) -> bool:
    """Write `failure.json` and the manifest as "failed" if this rank is the first to fail; returns whether it is."""
    failure = Failure(rank=rank, message=one_line(error))
    if not claim_failure(folder, failure):
        return False
    try:
        fail(folder, failure, manifest_fields() if manifest_fields else {})
    except (StoreError, RuntimeError) as second:  # a full disk, a lost device: the first error is the one that counts
        print_warning(f"the manifest could not be updated: {one_line(second)}")
    return True


def fail_with_parent(folder: Callable[[], Path | None], rank: int) -> None:
    """Where `perfkit run -n` ends before its ranks, mark their run as failed, unless a rank failed before.

    One rank reports it, and the last to end leaves nothing that ranks have in the folder only while they run.

    Args:
        folder: Returns the run's folder; None before it exists. It is called in another thread.
    """

    def record() -> None:
        run = folder()
        error = RunError("perfkit -n, which had started the ranks, has ended without ending them: was it killed?")
        if run is not None and record_failure(run, rank, error, None):
            print_error(one_line(error))

    def clean() -> None:
        run = folder()
        with suppress(OSError, StoreError):  # the folder was removed
            if run is not None and read_manifest(run).finished_at is not None:  # else another rank still writes it
                remove_temporary(run)

    before_end_with_parent(record)
    before_end_with_parent(clean, last=True)


def _terminated(number: int, _frame: FrameType | None) -> NoReturn:
    kind = HangupError if number == signal.SIGHUP else TerminatedError
    raise kind(f"ended by {signal.Signals(number).name}")
