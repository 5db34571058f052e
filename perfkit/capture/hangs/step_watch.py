"""Notices that no step ends, and asks all ranks for what they do.

A thread in every rank looks at a clock once a second; a step costs one reading of it. The first rank whose time is up
leaves a request in the run's folder, which every rank answers by itself: no collective is issued, no signal is sent,
and ranks that are stopped or gone are missed, not waited for. The time in which this process did not run at all (it was
stopped, or its host slept), or wrote a trace, does not count.
"""

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from perfkit.capture.hangs.rank_state import OWN_THREAD, read_rank_state, write_rank_state
from perfkit.capture.hangs.worker_stacks import REQUEST_NAME, follow_forks, set_place
from perfkit.diagnosis.folder import STATE_NAME
from perfkit.errors import PerfkitError

SHORTEST_DEFAULT_S: Final = 300.0
USUAL_STEPS: Final = 20
"""By default a step may take this many times the median of the last ones, and at least `SHORTEST_DEFAULT_S`."""

_REMEMBERED: Final = 64
_POLL_S: Final = 1.0
_GATHER_S: Final = 8.0
"""How long the ranks may take to write what they do."""
_MOST_REPORTS: Final = 8


class Hang(NamedTuple):
    """No step has ended for a while."""

    folder: Path
    idle_s: float
    """Since the last step that ended on the rank that noticed it."""


class StepWatch:
    """Watches the steps of one rank, from the end of its first one.

    Args:
        folder: The run's folder.
        rank: This rank.
        world_size: Number of ranks.
        limit_s: How long no step may end; None: see `USUAL_STEPS`.
        report: Called on the rank that noticed it first, once all ranks have written what they do.
        follow: Called on the others, with the folder, once they have.
        is_busy: Whether this rank does perfkit's own work (writes a trace).
        absent: Ranks that are known to be gone, and how; they are not waited for.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        world_size: int,
        limit_s: float | None,
        report: Callable[[Hang], None],
        follow: Callable[[Path], None] = lambda _: None,
        is_busy: Callable[[], bool] = lambda: False,
        absent: Callable[[], dict[int, str]] = dict,
    ) -> None:
        self._folder = folder
        self._rank = rank
        self._world_size = world_size
        self._limit_s = limit_s
        self._report = report
        self._follow = follow
        self._is_busy = is_busy
        self._absent = absent
        self._durations: deque[float] = deque(maxlen=_REMEMBERED)
        self._begin_s = time.monotonic()
        self._stopped = threading.Event()
        self._requests = 0
        self._reported_at = -1
        self.steps = 0
        """Steps that have ended since the watch began."""

    def step_ended(self) -> None:
        """Note that a step has ended; the first one begins the watch."""
        now = time.monotonic()
        if self.steps:
            self._durations.append(now - self._begin_s)
        self._begin_s = now
        self.steps += 1
        if self.steps == 1:
            follow_forks()
            set_place(self._folder, self._rank)
            threading.Thread(target=self._watch, name=f"{OWN_THREAD}steps", daemon=True).start()

    def stop(self) -> None:
        """Watch no longer: no more steps are expected."""
        self._stopped.set()

    @property
    def limit_s(self) -> float:
        """How long no step may end; twice as long after each report that was followed by another step."""
        longer = float(1 << self._requests)
        if self._limit_s is not None:
            return self._limit_s * longer
        usual = statistics.median(self._durations) if self._durations else 0.0
        return max(SHORTEST_DEFAULT_S, USUAL_STEPS * usual) * longer

    def _watch(self) -> None:
        looked = time.monotonic()
        pause = min(_POLL_S, (self._limit_s or SHORTEST_DEFAULT_S) / 4)
        while not self._stopped.wait(pause):
            now = time.monotonic()
            if self._is_busy() or now - looked > 3 * pause + 1:  # this process did not run meanwhile
                self._begin_s += now - looked
            looked = now
            try:
                if self._requests < _MOST_REPORTS and self._answer_or_ask(now - self._begin_s):
                    looked = time.monotonic()
            except (PerfkitError, OSError):
                return  # the folder is gone, or full: there is nowhere to report to

    def _answer_or_ask(self, idle_s: float) -> bool:
        """Write what this rank does if that was asked for, or if its time is up; returns whether it did."""
        request = self._folder / REQUEST_NAME.format(self._requests)
        asks = False
        if not request.exists():
            if idle_s < self.limit_s or self.steps == self._reported_at or not self._folder.is_dir():
                return False
            asks = self._ask(request)
        self._requests += 1
        self._reported_at = self.steps
        write_rank_state(self._folder, read_rank_state(self._rank, self._world_size, self.steps, self._folder))
        if asks:
            self._gather()
            self._report(Hang(self._folder, idle_s))
        else:
            self._follow(self._folder)
        return True

    def _ask(self, request: Path) -> bool:
        for rank in range(self._world_size if self._requests else 0):
            (self._folder / STATE_NAME.format(rank)).unlink(missing_ok=True)
        try:
            request.touch(exist_ok=False)
        except FileExistsError:
            return False  # another rank was quicker
        return True

    def _gather(self) -> None:
        deadline = time.monotonic() + _GATHER_S
        while time.monotonic() < deadline:
            missing = {
                rank for rank in range(self._world_size) if not (self._folder / STATE_NAME.format(rank)).exists()
            }
            if not missing - self._absent().keys():
                return
            time.sleep(_POLL_S / 10)


def usual_limit() -> str:
    """Return the default of the limit, for help texts."""
    return f"{USUAL_STEPS} times the median step, at least {SHORTEST_DEFAULT_S / 60:g}m"
