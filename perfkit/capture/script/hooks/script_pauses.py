"""Notes the checkpoints and evaluations of a script in its recording."""

import os
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import get_ident
from typing import NamedTuple

from torch import nn

from perfkit.capture.recording.pause_log import OpenPause
from perfkit.capture.recording.session import Session
from perfkit.capture.script.hooks.pause_hooks import around_checkpoints, around_evaluations
from perfkit.schema.per_run.pauses import RecordedPause


class _Evaluation(NamedTuple):
    module: "weakref.ref[nn.Module]"
    begin_ns: int
    begin: int
    """By the monotonic clock."""


class ScriptPauses:
    """Follows the checkpoints and evaluations of the thread that steps.

    Args:
        session: Returns the session; None before the first step has ended, and once recording is over.
    """

    def __init__(self, session: Callable[[], Session | None]) -> None:
        self._session = session
        self._pid = os.getpid()
        self._thread = get_ident()
        self._evaluation: _Evaluation | None = None
        self._checkpoints = 0

    @property
    def in_progress(self) -> bool:
        """Whether the thread that steps writes a checkpoint or evaluates now, be it recorded or not."""
        return self._checkpoints > 0 or self._evaluation is not None

    def attach(self) -> None:
        """Install the hooks in torch."""
        around_checkpoints(self._checkpoint)
        around_evaluations(self)

    def trains(self) -> None:
        """Note that the calling thread trains: what has begun is no evaluation."""
        self._thread = get_ident()
        self._evaluation = None

    def _current(self) -> Session | None:
        """Return the session if this is the thread that steps: others write while training goes on."""
        return self._session() if get_ident() == self._thread and os.getpid() == self._pid else None

    @contextmanager
    def _checkpoint(self) -> Iterator[OpenPause | None]:
        if get_ident() != self._thread or os.getpid() != self._pid:
            yield None
            return
        self._checkpoints += 1
        try:
            session = self._session()
            with nullcontext() if session is None else session.pause("checkpoint") as pause:
                yield pause
        finally:
            self._checkpoints -= 1

    def begin(self, module: nn.Module) -> None:
        """Note that a module that was training has been switched to evaluation."""
        if self._evaluation is None and get_ident() == self._thread:
            self._evaluation = _Evaluation(weakref.ref(module), time.time_ns(), time.perf_counter_ns())

    def end(self, module: nn.Module) -> None:
        """Note that a module has been switched to training."""
        begun, session = self._evaluation, self._current()
        if begun is None or begun.module() is not module:
            return
        self._evaluation = None
        if session is not None:
            lasted_ns = time.perf_counter_ns() - begun.begin
            session.pauses.add(
                RecordedPause(
                    phase="evaluation",
                    step=session.steps,
                    begin_ns=begun.begin_ns,
                    end_ns=begun.begin_ns + lasted_ns,
                )
            )
