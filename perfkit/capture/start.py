"""`perfkit.start`: records a training loop that is not to be indented, as `perfkit.profile` does."""

import atexit
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ParamSpec

from torch import Tensor

from perfkit.capture.profile import profile
from perfkit.capture.recording.session import Batch, Session
from perfkit.errors import RunError, UsageError
from perfkit.phases import Phase

P = ParamSpec("P")


def _with_arguments_of(other: Callable[P, object]) -> Callable[[Callable[..., "Recording"]], Callable[P, "Recording"]]:
    """Give a function that passes its arguments on to another the signature of that."""

    def decorate(function: Callable[..., "Recording"]) -> Callable[P, "Recording"]:
        function.__signature__ = inspect.signature(other).replace(return_annotation="Recording")  # type: ignore[attr-defined]
        return function

    return decorate


@_with_arguments_of(profile)
def start(*args: Any, **options: Any) -> "Recording":
    """Begin to record a training loop; every rank calls it, and `stop` of what it returns at the end.

    ::

        prof = perfkit.start("traces/mine")
        for batch in loader:
            ...
            prof.step(loss)
        prof.stop()

    The arguments are those of `perfkit.profile`, which needs no call of `stop`. A program that ends without one leaves
    a run that is marked as failed.

    Raises:
        UsageError: The schedule, a condition or a size is invalid.
        LaunchEnvironmentError: A launcher has started several ranks, and they have no process group.
        StoreError: The folder cannot be written.
    """
    return Recording(profile(*args, **options))


class Recording:
    """A recording in progress, as `perfkit.start` returns it.

    Args:
        opened: Context manager that records until it is exited; it is entered here.
    """

    def __init__(self, opened: AbstractContextManager[Session]) -> None:
        self._opened: AbstractContextManager[Session] | None = opened
        self._session = opened.__enter__()
        self.folder: Path = self._session.folder
        """The run's folder."""
        atexit.register(self._abandon)

    def step(self, loss: Tensor | float | None = None) -> None:
        """End a step and begin the next one; the loss, if any, goes into the manifest.

        Raises:
            UsageError: The recording has been stopped.
        """
        if self._opened is None:
            raise UsageError("prof.step() after prof.stop(): call perfkit.start() again to record more")
        self._session.step(loss)

    def phase(self, phase: Phase) -> AbstractContextManager[None]:
        """Annotate a phase of the step; `checkpoint`, `evaluation` and `logging` count for no step."""
        return self._session.phase(phase)

    def batches(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches of one pass over `loader`; waiting for each is annotated."""
        return self._session.batches(loader)

    def stop(self, error: BaseException | None = None) -> None:
        """End the recording: write the run, or after an `error` mark it as failed; a second call does nothing.

        Raises:
            StoreError: A trace cannot be written.
        """
        opened, self._opened = self._opened, None
        if opened is None:
            return
        atexit.unregister(self._abandon)
        try:
            opened.__exit__(None if error is None else type(error), error, error.__traceback__ if error else None)
        except BaseException as raised:
            if raised is not error:
                raise

    def _abandon(self) -> None:
        """Mark the run of a program that ends without `stop` as failed."""
        ended_by = getattr(sys, "last_value", None)
        self.stop(ended_by or RunError("the program ended without a call of prof.stop()"))
