"""Hooks into torch that note when a script writes a checkpoint or evaluates its model, and leave both as they are.

A checkpoint is a call of `torch.save` that writes to a file, or of `save` and `async_save` of
torch.distributed.checkpoint. An evaluation is the time from `module.eval()` to `module.train()` of the same module,
without a backward pass or the end of a step between: a module that a script freezes for good, or evaluates without ever
switching back, is not recognised.
"""

import functools
import os
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import nn

from perfkit.record.autograd_engine import COMPILER, uncompiled
from perfkit.record.import_hook import run_after_import
from perfkit.record.patching import Function, wrap_function
from perfkit.record.recording.pause_log import OpenPause, PauseLog, written_bytes
from perfkit.record.step_listener import PauseState
from perfkit.records.per_run.pauses import PausePhase, RecordedPause

if TYPE_CHECKING:
    from perfkit.record.recording.recording import Recording


_DISTRIBUTED: Final = "torch.distributed.checkpoint"

Pause = Callable[[], AbstractContextManager[OpenPause | None]]
"""Begins a checkpoint; None where it is not noted."""


def around_checkpoints(pause: Pause) -> None:
    hooked = torch.save = torch.serialization.save = _around_save(torch.save, pause)

    def leave_alone() -> None:
        if torch.save is hooked:
            torch.save = torch.serialization.save = uncompiled(hooked)

    run_after_import(COMPILER, leave_alone)
    run_after_import(_DISTRIBUTED, lambda: _around_distributed(pause))


def _around_save(save: Callable[..., Any], pause: Pause) -> Callable[..., Any]:
    @functools.wraps(save)
    def hooked(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_on_disk(f):
            return save(obj, f, *args, **kwargs)
        with pause() as noted:
            if noted:
                noted.called_in(sys._getframe())
            before = _position(f) if noted else None
            result = save(obj, f, *args, **kwargs)
            if noted and (after := _position(f)) is not None:
                noted.wrote(after - (before or 0) if hasattr(f, "tell") else after)
            return result

    return hooked


def _is_on_disk(target: Any) -> bool:
    """Return whether a checkpoint is a path or an open file: in memory, it may be measured, sent or copied."""
    if isinstance(target, (str, os.PathLike)):
        return True
    with suppress(AttributeError, NotImplementedError, OSError, TypeError, ValueError):
        target.fileno()
        return True
    return False


def _position(target: Any) -> int | None:
    """Return the size of the file at a path, or the position in an open one; None if unknown."""
    with suppress(OSError, TypeError, ValueError):
        return int(target.tell() if hasattr(target, "tell") else os.path.getsize(target))
    return None


def _around_distributed(pause: Pause) -> None:
    package: Any = __import__(_DISTRIBUTED, fromlist=["state_dict_saver"])
    for name, asynchronous in (("save", False), ("async_save", True)):
        wrap_function(package, name, partial(_around_distributed_save, pause=pause, asynchronous=asynchronous))
        setattr(package.state_dict_saver, name, getattr(package, name))


def _around_distributed_save(save: Callable[..., Any], pause: Pause, asynchronous: bool) -> Callable[..., Any]:
    def hooked(*args: Any, **kwargs: Any) -> Any:
        with pause() as noted:
            if noted:
                noted.called_in(sys._getframe())
            result = save(*args, **kwargs)
            if noted and asynchronous:
                noted.asynchronous = True
            elif noted and (size := written_bytes(kwargs.get("checkpoint_id"))) is not None:
                noted.wrote(size)
            return result

    return hooked


def around_evaluations(begin: Callable[[nn.Module], None], end: Callable[[nn.Module], None]) -> None:
    """Call `end` after the outermost calls of `Module.train`, and `begin` after those that end a module's training."""
    inside = [False]

    def around(train: Function) -> Function:
        def hooked(self: nn.Module, mode: bool = True) -> Any:
            if inside[0] or torch.compiler.is_compiling():
                return train(self, mode)
            was_training, inside[0] = self.training, True
            try:
                result = train(self, mode)
            finally:
                inside[0] = False
            if mode:
                end(self)
            elif was_training:
                begin(self)
            return result

        return hooked

    wrap_function(nn.Module, "train", around)


_STEPS_IN_A_ROW: Final = 3
"""Steps in a row with an evaluation which tell that it is part of the steps; two in a row may be an interval's and
then an epoch's."""
_MOST_IN_A_STEP: Final = 8
"""Evaluations between two steps which are more than those of a few data sets."""


class UnrecordedPauses:
    """Keeps pauses in which nothing is recorded: steps are shorter by them for whatever listens."""

    def __init__(self, state: PauseState, steps: Callable[[], int]) -> None:
        self.pauses = PauseLog(state)
        self._steps = steps

    @property
    def steps(self) -> int:
        return self._steps()

    def pause(self, phase: PausePhase) -> AbstractContextManager[OpenPause]:
        return self.pauses.pause(phase, self.steps)


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

    def __init__(self, recording: "Callable[[], Recording | UnrecordedPauses | None]", state: PauseState) -> None:
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
