"""Finds out while a run is in progress whether a rank is late, for the condition `rank late > 20 %`.

A rank does not know how long the others wait for it, but what each of them waited is in the monitor's logs in the run's
folder. They are read as `perfkit watch` reads them: what was appended, without a collective.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from perfkit.engine.ranks.delays import find_delays
from perfkit.engine.ranks.lateness import excess
from perfkit.options.conditions import Condition
from perfkit.record.on_demand.requesting_rank import CALM_STEPS, Firing
from perfkit.record.own_threads import start_own_thread
from perfkit.records.monitor import KIND_NUMBERS
from perfkit.storage.step_log.follow import RunFollower
from perfkit.subjects.monitor.late import FALSE_ALARMS
from perfkit.subjects.monitor.table import ONLY, StepTable, align, over_ranks, own_times, rank_steps

STRETCH: Final = 32
"""Plain steps of each of the two stretches in which a rank must be late: as many as `perfkit watch` shows."""
KEPT: Final = 256
"""Records of a rank that are kept: among them may be steps of captures."""


_READ_S: Final = 2.0
_SHARE: Final = 0.02
"""How often the logs of all ranks are read, and which share of a core that may take."""


class LateRank(NamedTuple):
    """The rank that is late by most."""

    rank: int
    lag_ns: float
    """Median excess of its own time over the median of the others, in the second stretch."""
    step_ns: float
    """Median step of that stretch, the longest over ranks."""
    first_step: int
    last_step: int
    """Of the two stretches."""


class LateRanks:
    """The condition `rank late > 20 %` of a run; one rank looks for all."""

    def __init__(self, run: RunFollower, condition: Condition) -> None:
        self._run = run
        self._condition = condition
        self._is_asked = False
        self._calm_since: int | None = None

    def check(self) -> Firing | None:
        """Read what was logged since the last time; returns that the condition holds, until `asked` is called.

        After that it has to stop holding for some steps before it is returned again.
        """
        if not self._run.read():
            return None
        logs = {rank: rank_steps(log.records, log.device) for rank, log in self._run.logs.items() if len(log.records)}
        table = align(logs)
        recent = None if table is None else last_plain_steps(table)
        if recent is None:  # also after a capture of thousands of ranks, of which few records are kept
            return None
        late = find_late_rank(recent, self._condition.limit)
        if late is None:
            step = int(recent.first[-1])
            self._calm_since = step if self._calm_since is None else self._calm_since
            self._is_asked &= step - self._calm_since < CALM_STEPS
            return None
        self._calm_since = None
        return None if self._is_asked else Firing(self._condition, _reason(late), asked=self.asked)

    def asked(self) -> None:
        self._is_asked = True


def watch_lateness(
    folder: Path,
    condition: Condition,
    offer: Callable[[Firing], None],
    stopped: threading.Event,
    warn: Callable[[Exception], None],
) -> None:
    """Look at the logs of all ranks in a separate thread.

    Args:
        offer: Called while it holds, until a capture has been asked for.
        warn: Called with an error, which ends the thread.
    """
    late = LateRanks(RunFollower(folder, KEPT), condition)

    def check() -> None:
        pause_s = _READ_S
        while not stopped.wait(pause_s):
            begin_s = time.thread_time()
            try:
                firing = late.check()
                if firing is not None:
                    offer(firing)
            except Exception as error:  # noqa: BLE001  the outermost boundary of this thread, which is inside a program
                warn(error)
                return
            pause_s = max(_READ_S, (time.thread_time() - begin_s) / _SHARE)

    start_own_thread("late", check)


def last_plain_steps(table: StepTable) -> StepTable | None:
    """Return the last two stretches of steps that are plain on all ranks, and that all have logged; None if fewer."""
    kinds = table.columns["kind"]
    is_plain = (kinds == KIND_NUMBERS["plain"]).all(axis=0) & (table.counts == 1)
    columns = np.flatnonzero(is_plain)[-2 * STRETCH :]
    return table.between(columns) if len(columns) == 2 * STRETCH else None


def find_late_rank(recent: StepTable, limit: float) -> LateRank | None:
    """Return the rank that is late by most in both of two stretches; None without one.

    It is late in every step beyond chance (metrics.md section 5), and its median excess exceeds the limit in each.

    Args:
        limit: Share of the median step of the second stretch.
    """
    if (times := own_times(recent)) is None:
        return None
    late = [one.row for one in find_delays(times, FALSE_ALARMS) if one.every == 1]
    if not late:
        return None
    excess_ns = excess(times.of(ONLY))[late]
    first_ns, lag_ns = (np.median(part, axis=1) for part in (excess_ns[:, :STRETCH], excess_ns[:, STRETCH:]))
    step_ns = float(np.median(over_ranks(recent.wall_ns)[STRETCH:]))
    most = int(np.where(first_ns > limit * step_ns, lag_ns, 0).argmax())
    if not min(first_ns[most], lag_ns[most]) > limit * step_ns:
        return None
    steps = int(recent.first[0]), int(recent.first[-1])
    return LateRank(recent.ranks[late[most]], float(lag_ns[most]), step_ns, *steps)


def _reason(late: LateRank) -> str:
    lag = f"{late.lag_ns / 1e6:.3g} ms, {late.lag_ns / late.step_ns:.0%} of the step"
    return f"rank {late.rank} was late by {lag}, in steps {late.first_step} to {late.last_step}"
