"""Notices that no step ends, and asks all ranks for what they do.

A thread in every rank looks at a clock once a second; a step costs one reading of it. The first rank whose time is up
leaves a request in the run's folder, which every rank answers by itself: no collective is issued, and ranks that are
stopped or gone are missed, not waited for. Only a rank that cannot answer is sent a signal (`held_lock.py`). The time
in which this process did not run at all (it was stopped, or its host slept), wrote a trace, or paused for a
checkpoint or an evaluation, does not count.

Nothing that goes wrong here reaches the program: the watch ends instead.
"""

import contextlib
import os
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from perfkit.base.polling import WATCH_S
from perfkit.record.endings import TerminatedError
from perfkit.record.hangs.held_lock import write_stack_on_signal
from perfkit.record.hangs.rank_state import read_answers, read_rank_state, write_rank_state
from perfkit.record.hangs.worker_stacks import REQUEST_NAME, follow_forks, share_run, worker_stacks
from perfkit.record.messages import one_line, print_warning
from perfkit.record.own_threads import start_own_thread
from perfkit.record.step_listener import StepListener
from perfkit.records.hang import RankState

SHORTEST_DEFAULT_S: Final = 300.0
USUAL_STEPS: Final = 20
"""By default a step may take this many times the median of the last ones, and at least `SHORTEST_DEFAULT_S`."""
FIRST_STEP_S: Final = 1800.0
FIRST_STEP_TIMES: Final = 10
"""The first step may take so long by default, or so many times the limit: it starts loaders, compiles and warms up."""

_REMEMBERED: Final = 64
_GATHER_S: Final = 20.0
"""How long the ranks may take to write what they do: a few seconds on a busy machine, and its workers as long."""
_GATHER_POLL_S: Final = 0.5
_FOLLOW_POLL_S: Final = 0.25
"""How often a rank that has answered looks whether the run is ended, while that may be."""
_MOST_REPORTS: Final = 8

END_NAME: Final = ".hang.end"
"""Empty file in the run's folder: the run is being ended, because no step ends."""


class Hang(NamedTuple):
    """No step has ended for a while."""

    folder: Path
    idle_s: float
    """Since the last step that ended on the rank that noticed it."""
    request: int
    """Number of the request that the ranks have answered."""
    resumed: Callable[[], bool]
    """Whether a step has ended since, so that there is no hang any more."""
    step: int = 1
    """The step that has not ended on that rank, from 0."""


class StepWatch(StepListener):
    """Watches the steps of one rank, from `begin` on, or without it from the end of its first one.

    Args:
        limit_s: How long no step may end; None: see `USUAL_STEPS`. Of the first step: see `FIRST_STEP_S`.
        report: Called on the rank that noticed it first, once all ranks have written what they do.
        follow: Called time and again on every rank that has answered, with the folder and the request's number: ends
            the rank if the run is ended.
        is_busy: Whether this rank does what is no part of a step: writes a trace, or pauses for a checkpoint.
        absent: Ranks that are known to be gone, and how; they are not waited for.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        world_size: int,
        limit_s: float | None,
        report: Callable[[Hang], None],
        follow: Callable[[Path, int], None] = lambda *_: None,
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
        self._answered_s = -_GATHER_S
        self._state: RankState | None = None
        """What this rank has answered, until a step ends."""
        self._writing = threading.RLock()  # a signal handler may stop this within it
        self._has_left = False
        self._has_begun = False
        self.steps = 0

    def begin(self, begin_s: float | None = None) -> None:
        """Begin the watch: the first step begins, or has begun at a time of `time.monotonic`."""
        self._begin_s = time.monotonic() if begin_s is None else begin_s
        self._has_begun = True
        try:
            follow_forks()
            write_stack_on_signal()
            share_run(self._folder, self._rank)
            start_own_thread("steps", self._watch)
        except Exception as error:  # noqa: BLE001  the outermost boundary: beyond it is the program's optimizer
            self._give_up(error)

    def end_step(self, *_: object) -> None:
        """Note that a step has ended; the first one begins the watch, unless it has begun."""
        now = time.monotonic()
        if self.steps:
            self._durations.append(now - self._begin_s)
        self._begin_s = now
        self.steps += 1
        if not self._has_begun:
            self.begin(now)

    def end(self) -> None:
        self.stop(None)

    def fail(self, error: BaseException, /) -> None:
        self.stop(error)

    def stop(self, error: BaseException | None) -> None:
        """Watch no longer; what an error has ended is left for the others, if there are any and no signal ends all.

        Only the first call counts.
        """
        if self._stopped.is_set():
            return
        self._stopped.set()
        with contextlib.suppress(Exception):  # the outermost boundary: beyond it is the end of the program
            self._mark_resumed()
            by_signal = isinstance(error, (KeyboardInterrupt, TerminatedError))
            if error is None or by_signal or self._world_size == 1 or (self._folder / END_NAME).exists():
                return
            last = self._requests - 1 if self._requests else None
            self._write(read_rank_state(self._rank, self._world_size, self.steps, last, error), last=True)

    def ask(self) -> int:
        """Let all ranks whose steps are still watched write what they do; returns the number of the request."""
        (self._folder / REQUEST_NAME.format(self._requests)).touch()
        return self._requests

    @property
    def limit_s(self) -> float:
        """How long no step may end; twice as long after each report that was followed by another step."""
        longer = float(1 << self._requests)
        if not self.steps:
            return longer * (FIRST_STEP_S if self._limit_s is None else FIRST_STEP_TIMES * self._limit_s)
        if self._limit_s is not None:
            return self._limit_s * longer
        usual = statistics.median(self._durations) if self._durations else 0.0
        return max(SHORTEST_DEFAULT_S, USUAL_STEPS * usual) * longer

    def _give_up(self, error: Exception) -> None:
        self._stopped.set()
        with contextlib.suppress(Exception):
            if os.path.isdir(self._folder):
                print_warning(f"rank {self._rank}: it is no longer watched whether steps end: {one_line(error)}")

    def _watch(self) -> None:
        try:
            self._watch_until_stopped()
        except Exception as error:  # noqa: BLE001  the outermost boundary of this thread, which is inside a program
            self._give_up(error)

    def _watch_until_stopped(self) -> None:
        checked = time.monotonic()
        pause = min(WATCH_S, (self._limit_s or SHORTEST_DEFAULT_S) / 4)
        while not self._stopped.wait(self._pause_s(pause)):
            now = time.monotonic()
            if self._is_busy() or now - checked > 3 * pause + 1:  # this process did not run meanwhile
                self._begin_s += now - checked
            checked = now
            self._mark_resumed()
            if self._requests:
                self._follow(self._folder, self._requests - 1)
            if self._requests < _MOST_REPORTS and self._answer_or_ask(now - self._begin_s):
                checked = time.monotonic()

    def _pause_s(self, usual_s: float) -> float:
        may_be_ended = self.steps == self._reported_at and time.monotonic() - self._answered_s < _GATHER_S
        return min(usual_s, _FOLLOW_POLL_S) if may_be_ended else usual_s

    def _mark_resumed(self) -> None:
        """Once a step has ended, mark what this rank has answered: it is no longer what it does."""
        with self._writing:
            state, self._state = self._state, None
            if state is not None and state.steps == self.steps:
                self._state = state
            elif state is not None and not self._has_left:
                write_rank_state(self._folder, replace(state, resumed=True))

    def _write(self, state: RankState, *, last: bool = False) -> None:
        with self._writing:
            if not self._has_left:
                write_rank_state(self._folder, state)
                self._state, self._has_left = state, last

    def _answer_or_ask(self, idle_s: float) -> bool:
        """Write what this rank does if that was asked for, or if its time is up; returns whether it did."""
        number = self._requests
        request = self._folder / REQUEST_NAME.format(number)
        asks = False
        if not request.exists():
            if idle_s < self.limit_s or self.steps == self._reported_at or not self._folder.is_dir():
                return False
            with contextlib.suppress(FileExistsError):  # another rank was quicker
                request.touch(exist_ok=False)
                asks = True
        self._requests += 1
        self._reported_at = self.steps
        self._answer(number)
        self._answered_s = time.monotonic()
        if asks and self._gather(number):
            step = self._reported_at
            self._report(Hang(self._folder, idle_s, number, lambda: self.steps != step, step))
        return True

    def _answer(self, request: int) -> None:
        """Write what this rank does, and again once its loader workers have left what they do."""
        state = read_rank_state(self._rank, self._world_size, self.steps, request)
        state = replace(state, paused=self._is_busy())
        self._write(state)
        if state.awaits_workers:
            workers = worker_stacks(self._folder, self._rank, request)
            self._write(replace(state, workers=workers, awaits_workers=False))

    def _gather(self, request: int) -> bool:
        """Wait until all ranks have answered, or are known to be gone; returns whether still no step has ended."""
        deadline = time.monotonic() + _GATHER_S
        awaited = set(range(self._world_size))
        while self.steps == self._reported_at:
            answers = read_answers(self._folder, awaited, request)
            if answers.resumed:
                return False
            awaited = answers.missing | answers.incomplete
            if not awaited - self._absent().keys() or time.monotonic() > deadline:
                return True
            if self._stopped.wait(_GATHER_POLL_S):
                return False
        return False
