"""What the callbacks share: a recording that a framework's events begin, annotate, step and end."""

import functools
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from perfkit.options.recording import DetailName
from perfkit.options.schedule import DEFAULT_SCHEDULE, Schedule
from perfkit.options.trace_ranks import check_trace_ranks, refuse_stages
from perfkit.phases import Phase
from perfkit.record.messages import print_warning
from perfkit.record.profile import start
from perfkit.record.recording.recording import Recording
from perfkit.record.recording.throughput import StepWork
from perfkit.record.script import marker
from perfkit.record.script.hooks.pass_hooks import Annotations, BackwardPasses, ForwardPasses
from perfkit.record.script.hooks.torch_hooks import around_backward
from perfkit.records.per_run.pauses import PAUSE_PHASES


class FrameworkRecorder:
    """Records the steps of a framework's training loop.

    Under `perfkit run SCRIPT`, which records the script already, it only marks where the framework's steps end.

    Args:
        folder: The run's folder, as for `perfkit.profile`.
        passes: Whether forward and backward passes are to be found by torch's calls, for frameworks without events.

    Raises:
        UsageError: The schedule is invalid.
    """

    def __init__(
        self,
        folder: str | Path,
        schedule: str = DEFAULT_SCHEDULE,
        detail: DetailName = "time",
        trace_ranks: str | None = None,
        *,
        passes: bool,
    ) -> None:
        Schedule.parse(schedule)  # before the training begins
        self._folder = folder
        self._schedule = schedule
        check_trace_ranks(trace_ranks, detail)
        refuse_stages(trace_ranks)
        self._detail: DetailName = detail
        self._trace_ranks = trace_ranks
        self._passes = passes
        self._recording: Recording | None = None
        self._phase: ExitStack | None = None
        self._paused = False

    @property
    def folder(self) -> Path | None:
        """The run's folder; None before training begins, and under `perfkit run`."""
        return None if self._recording is None else self._recording.folder

    def begin(self, workload: str, device: torch.device, work: StepWork | None = None) -> None:
        """Begin to record; a recording that an error has left behind is marked as failed."""
        self.end(RuntimeError("training ended without an event of its end"))
        if marker.is_listened_to():
            return
        self._recording = start(
            self._folder,
            schedule=self._schedule,
            detail=self._detail,
            trace_ranks=self._trace_ranks,
            workload=workload,
            device=device,
            work=work,
        )
        self._annotate(True)

    def begin_phase(self, phase: Phase) -> None:
        """End the phase in progress, and begin another."""
        self.end_phase()
        if self._recording is not None:
            self._phase = ExitStack()
            self._phase.enter_context(self._recording.phase(phase))
            if phase in PAUSE_PHASES:
                self._paused = True
                self._annotate(False)

    def end_phase(self) -> None:
        """End the phase in progress, if any."""
        phase, self._phase = self._phase, None
        if phase is not None:
            phase.close()
        if self._paused:
            self._paused = False
            self._annotate(True)

    def step(self, loss: Tensor | float | None = None) -> None:
        self.end_phase()
        if self._recording is not None:
            self._recording.step(loss)
        else:
            marker.step()

    def end(self, error: BaseException | None = None) -> None:
        """End the recording, if there is one; after an error the run is marked as failed."""
        self.end_phase()
        recording, self._recording = self._recording, None
        self._annotate(False)
        if recording is not None:
            recording.stop(error)

    def _annotate(self, enabled: bool) -> None:
        """Annotate passes that are found by torch's calls from now on, or none."""
        if self._passes:
            _hooks().enable(enabled)


class _PassHooks:
    """Annotates forward and backward passes; in place once for the whole process, and idle until it is enabled."""

    def __init__(self) -> None:
        self._annotations = Annotations()
        self._forward = ForwardPasses(None, self._annotations, _nothing, _report)
        backward = BackwardPasses(self._annotations, _nothing, _report)
        around_backward(backward.begin, backward.end)

    def enable(self, enabled: bool) -> None:
        """Annotate the passes of this thread, or none."""
        self._annotations.enable(enabled)
        if enabled:
            self._forward.calls.install()
        else:
            self._forward.calls.remove()


_hooks: Final = functools.cache(_PassHooks)
"""Returns the same object at each call."""


def _nothing(_subject: Any) -> None:
    pass


def _report(error: Exception) -> None:
    print_warning(f"forward and backward passes are not annotated: {type(error).__name__}: {error}")
