"""Notes the checkpoints and evaluations of a script in its recording."""

import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import get_ident
from typing import Final, NamedTuple, Protocol

from torch import nn

from perfkit.record.pause_state import PauseState
from perfkit.record.recording.pause_log import OpenPause, PauseLog
from perfkit.record.script.hooks.pause_hooks import around_checkpoints, around_evaluations
from perfkit.records.per_run.pauses import PausePhase, RecordedPause

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


class PauseKeeper(Protocol):
    """What pauses are noted in: a recording, or the monitor where nothing is recorded."""

    @property
    def pauses(self) -> PauseLog:
        """The pauses so far."""

    @property
    def steps(self) -> int:
        """Steps that have ended."""

    def pause(self, phase: PausePhase) -> AbstractContextManager[OpenPause]:
        """Note a pause."""


class ScriptPauses:
    """Follows the checkpoints and evaluations of the thread that steps.

    Args:
        recording: Returns the recording, or what keeps pauses in its place; None before the first step has ended, and
            once it is over.
        state: Where to note that the script pauses.
    """

    def __init__(self, recording: Callable[[], PauseKeeper | None], state: PauseState) -> None:
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
        """Install the hooks in torch."""
        around_checkpoints(self._checkpoint)
        around_evaluations(self)

    def trains(self) -> None:
        """Note that the calling thread trains: what has begun is no evaluation."""
        self._thread = get_ident()
        if self._evaluation is not None:
            self._evaluation = None
            self._note_state()

    def _note_state(self) -> None:
        self._state.in_progress = self.in_progress

    def _current(self) -> PauseKeeper | None:
        """Return the recording if this is the thread that steps: others write while training goes on."""
        return self._recording() if get_ident() == self._thread and os.getpid() == self._pid else None

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
        """Note that a module that was training has been switched to evaluation."""
        if self._evaluation is None and get_ident() == self._thread:
            self._evaluation = _Evaluation(weakref.ref(module), time.time_ns(), time.perf_counter_ns())
            self._note_state()

    def end(self, module: nn.Module) -> None:
        """Note that a module has been switched to training."""
        begun, recording = self._evaluation, self._current()
        if begun is None or begun.module() is not module:
            return
        self._evaluation = None
        self._note_state()
        if recording is None or self._is_part_of_steps(recording):
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

    def _is_part_of_steps(self, recording: PauseKeeper) -> bool:
        """Return whether the script evaluates within its steps, as the evaluation that has just ended tells."""
        if not self._within_steps and self._rhythm.evaluated(recording.steps):
            self._within_steps = True
            recording.pauses.drop_evaluations()
        return self._within_steps


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
