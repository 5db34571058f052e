"""What listens to the steps of a recording: profiler, monitor, loaders, captures, the watch for hangs, the manifest."""

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from perfkit.records.manifest import StepKind

if TYPE_CHECKING:
    from torch import Tensor


class StepListener:
    """Follows the steps of one rank's `Recording`, which calls this from the thread that trains.

    A class that listens overrides what it needs. At the end, after a failure too, the last listener is called first.
    """

    waits_for_device: ClassVar[bool] = False
    """Whether `discard` waits for the device, which after a failure may wait for a rank that is gone."""
    writing: bool = False
    """Whether it writes what it has recorded: that is part of no step."""

    def begin(self) -> None:
        """The first step is about to begin."""

    def begin_step(self) -> None:
        """A step begins; a second call moves its beginning: its batch was requested later."""

    def end_step(self, step: int, kind: StepKind, loss: "Tensor | float | None", /) -> None:
        """A step has ended: its number, what it was, and its loss if known; one on a device is not waited for."""

    def between_steps(self) -> None:
        """Do what is part of no step, before the next one begins."""

    def end(self) -> None:
        """No more steps follow, and the run has not failed: stop."""
        self.discard()

    def fail(self, error: BaseException, /) -> None:
        """The run has failed."""

    def discard(self) -> None:
        """Stop, and forget what is not written yet."""


class Recorder:
    """A profiler beside torch's, which is started before the first recorded step of a cycle and stopped after the last.

    Both happen between steps, and are part of no step's time. A class that records overrides what it needs.
    """

    def start(self) -> None:
        """Begin to record."""

    def stop(self) -> None:
        """Stop recording, and keep what was recorded."""

    def write(self, stem: Path) -> None:
        """Write what was recorded to files that are named `stem` with a suffix.

        Raises:
            StoreError: One of them cannot be written.
        """


class PauseState:
    """Whether training pauses, and for how long it has so far: plain attributes, as they are read in every step."""

    __slots__ = ("in_progress", "total_ns")

    def __init__(self) -> None:
        self.in_progress = False
        self.total_ns = 0
