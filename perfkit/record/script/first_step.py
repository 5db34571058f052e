"""Watches the first step of a script's rank: if it does not end, the run begins while it is in progress.

Otherwise a script's run begins when its first step has ended, because before nobody knows whether it trains at all. So
that step is watched only with `--hang-after`, and only where the process has made a group of several ranks: what a
diagnosis shows is that one waits for another.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch.distributed as dist

from perfkit.base.polling import WATCH_S, watch_s
from perfkit.errors import RunError
from perfkit.record.endings import exit_cause
from perfkit.record.hangs.step_watch import FIRST_STEP_TIMES
from perfkit.record.lifecycle.failure_guard import record_failure
from perfkit.record.own_threads import start_own_thread
from perfkit.record.script.coordination import RankExchange, ScriptRankGroup
from perfkit.record.script.hang_watch import ScriptHangWatch
from perfkit.record.script.manifest_assembly import assemble_manifest, read_exit_records, remove_exit_records
from perfkit.record.script.rank_marks import joined_ranks, remove_mark
from perfkit.storage.run_folder import read_manifest


class BegunRun(NamedTuple):
    """A run, as far as it exists before the first step of this rank has ended."""

    ranks: ScriptRankGroup
    folder: Path
    hangs: ScriptHangWatch


class RunBeginning:
    """Begins the run of this rank once, whichever thread asks first."""

    def __init__(self, begin: Callable[[], BegunRun]) -> None:
        self._begin = begin
        self._lock = threading.RLock()  # a signal handler may end the run while it begins
        self._error: Exception | None = None
        self.begun: BegunRun | None = None

    def get(self) -> BegunRun:
        """Return the run, which begins now unless it has begun.

        Raises:
            PerfkitError: It cannot be begun; the same at each call, because ranks agree on a folder only once.
        """
        with self._lock:
            if self._error is not None:
                raise self._error
            if self.begun is None:
                try:
                    self.begun = self._begin()
                except Exception as error:
                    self._error = error
                    raise
            return self.begun

    def leave(self, error: BaseException | None, wait_s: float = -1) -> Path | None:
        """End the run on this rank, if it has begun: no step of it is recorded. It does not begin any more.

        Args:
            error: Why the script ends, or is not recorded; None if it ends well.
            wait_s: How long to wait where the run is being begun, with ranks that may be gone; -1: until it has.

        Returns:
            The run's folder, if this rank has completed its manifest: those that have stepped had all ended.

        Raises:
            StoreError: The manifest cannot be read or written.
        """
        if not self._lock.acquire(timeout=wait_s):  # the watch may be beginning it, and must not do so from now on
            return None
        try:
            begun, self.begun = self.begun, None
            self._error = self._error or RunError("the script has ended")
        finally:
            self._lock.release()
        if begun is None:
            return None
        ranks, folder, hangs = begun
        hangs.stop(error)
        if error is None:
            remove_mark(folder, ranks.rank)
            if joined_ranks(folder) or read_exit_records(folder):
                return folder if assemble_manifest(folder, ranks.world_size, ranks.info.launcher) else None
            if read_manifest(folder).state == "completed":  # the ranks that have stepped had ended before
                return None
        record_failure(folder, ranks.rank, exit_cause(error) if error else RunError("no step was recorded"), None)
        remove_exit_records(folder)
        return None


class FirstStepWatch:
    """Begins the run early, and the watch of its steps with it.

    That is when the first step has not ended for ten times `--hang-after` since the process group was made, or another
    rank has begun the run: it may be the one that waits.

    Args:
        exchange: Returns how the ranks find each other, as far as that is known by now.
        is_busy: Whether the script does what is no part of a step.
    """

    def __init__(
        self, limit_s: float, run: RunBeginning, exchange: Callable[[], RankExchange], is_busy: Callable[[], bool]
    ) -> None:
        self._limit_s = FIRST_STEP_TIMES * limit_s
        self._run = run
        self._exchange = exchange
        self._is_busy = is_busy
        self._stopped = threading.Event()
        self._lock = threading.RLock()  # a signal handler may stop it within

    def start(self) -> None:
        """Begin the watch: the script begins. Not in a process with a group by now: a loader worker inherits it."""
        if dist.is_available() and dist.is_initialized():
            return
        start_own_thread("first-step", self._watch)

    def stop(self) -> None:
        """Watch no longer: the first step has ended, or the script, or it is not recorded."""
        with self._lock:
            self._stopped.set()

    def _watch(self) -> None:
        begin_s, checked, pause = None, time.monotonic(), WATCH_S
        while not self._stopped.wait(pause):
            now = time.monotonic()
            if begin_s is not None and (self._is_busy() or now - checked > 3 * pause + 1):  # it did not run meanwhile
                begin_s += now - checked
            checked = now
            try:
                found = self._exchange()
                if found.store is None or found.exchange is None:  # no process group, or one of a single rank
                    continue
                pause = watch_s(found.info.world_size)
                begin_s = now if begin_s is None else begin_s
                if now - begin_s >= self._limit_s or found.exchange.is_published():
                    self._begin(begin_s)
                    return
            except Exception:  # noqa: BLE001  the outermost boundary of this thread, which is inside a program
                return  # as without the watch; what fails here fails at the end of the first step too, and is told then

    def _begin(self, begin_s: float) -> None:
        hangs = self._run.get().hangs
        with self._lock:
            if not self._stopped.is_set():
                hangs.begin(begin_s)
