"""Notes the checkpoints and evaluations of a script in its recording."""

import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import get_ident
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from torch import nn

from perfkit.record.recording.pause_log import OpenPause
from perfkit.record.script.hooks.pause_hooks import around_checkpoints, around_evaluations
from perfkit.record.step_listener import PauseState
from perfkit.records.per_run.pauses import RecordedPause

if TYPE_CHECKING:
    from perfkit.record.recording.recording import Recording
    from perfkit.record.script.script_monitor import ScriptMonitor

    PauseKeeper: TypeAlias = Recording | ScriptMonitor
    """What pauses are noted in: a recording, or the monitor where nothing is recorded."""

_STEPS_IN_A_ROW: Final = 3
"""Steps in a row with an evaluation which tell that it is part of the steps; two in a row may be an interval's and
then an epoch's."""
_MOST_IN_A_STEP: Final = 8
"""Evaluations between two steps which are more than those of a few data sets."""


class _Evaluation(NamedTuple):
    module: "weakref.ref[nn.Module]"
    begin_ns: int
    begin: int
    """By the monotonic clock."""


class ScriptPauses:
    """Follows the checkpoints and evaluations of the thread that steps.

    Args:
        recording: Returns the recording, or what keeps pauses in its place; None before the first step has ended, and
            once it is over.
        state: Where to note that the script pauses.
    """

    def __init__(self, recording: "Callable[[], PauseKeeper | None]", state: PauseState) -> None:
        self._recording = recording
        self._state = state
        self._pid = os.getpid()
        self._thread = get_ident()
        self._evaluation: _Evaluation | None = None
        self._rhythm = _Rhythm()
        self._within_steps = False
        """Whether evaluations are part of the steps: pseudo labels, rollouts."""
        self._checkpoints = 0

    @property
    def in_progress(self) -> bool:
        """Whether the thread that steps writes a checkpoint or evaluates now, be it recorded or not."""
        evaluates = self._evaluation is not None and not self._within_steps
        return self._checkpoints > 0 or evaluates

    def attach(self) -> None:
        around_checkpoints(self._checkpoint)
        around_evaluations(self.begin, self.end)

    def trains(self) -> None:
        """Note that the calling thread trains: what has begun is no evaluation."""
        self._thread = get_ident()
        if self._evaluation is not None:
            self._evaluation = None
            self._note_state()

    def _note_state(self) -> None:
        self._state.in_progress = self.in_progress

    @contextmanager
    def _checkpoint(self) -> Iterator[OpenPause | None]:
        if get_ident() != self._thread or os.getpid() != self._pid:
            yield None
            return
        self._checkpoints += 1
        self._note_state()
        try:
            recording = self._recording()
            with nullcontext() if recording is None else recording.pause("checkpoint") as pause:
                yield pause
        finally:
            self._checkpoints -= 1
            self._note_state()

    def begin(self, module: nn.Module) -> None:
        if self._evaluation is None and get_ident() == self._thread:
            self._evaluation = _Evaluation(weakref.ref(module), time.time_ns(), time.perf_counter_ns())
            self._note_state()

    def end(self, module: nn.Module) -> None:
        begun = self._evaluation
        if begun is None or begun.module() is not module:
            return
        # Other threads write, and forked processes train, while training goes on.
        steps_here = get_ident() == self._thread and os.getpid() == self._pid
        recording = self._recording() if steps_here else None
        self._evaluation = None
        self._note_state()
        if recording is None:
            return
        if not self._within_steps and self._rhythm.evaluated(recording.steps):
            self._within_steps = True
            recording.pauses.drop_evaluations()
        if self._within_steps:
            return
        lasted_ns = time.perf_counter_ns() - begun.begin
        recording.pauses.add(
            RecordedPause(
                phase="evaluation",
                step=recording.steps,
                begin_ns=begun.begin_ns,
                end_ns=begun.begin_ns + lasted_ns,
            )
        )


class _Rhythm:
    """How often a script evaluates."""

    def __init__(self) -> None:
        self._last = -2
        self._steps = self._times = 0
        """Steps in a row with an evaluation, and evaluations since the last step ended."""

    def evaluated(self, step: int) -> bool:
        """Note an evaluation, and return whether the script evaluates within its steps."""
        if step != self._last:
            self._steps = self._steps + 1 if step == self._last + 1 else 1
            self._last, self._times = step, 0
        self._times += 1
        return self._steps >= _STEPS_IN_A_ROW or self._times > _MOST_IN_A_STEP
