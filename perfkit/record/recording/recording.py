"""Times steps, annotates phases, and records the steps that the schedule selects.

A workload, a script, a user's own loop and a framework's callbacks use the same `Recording`::

    with perfkit.profile("traces/mine", schedule="wait=1,warmup=1,active=3") as prof:
        for batch in prof.batches(loader):
            with prof.phase("forward"):
                ...
            prof.step()

A step lasts from the request for its batch to `step()`. Starting and stopping the profiler, synchronizing the ranks,
writing and compressing a trace happen inside `step()` after that, so that they are part of no step's time.
"""

import atexit
import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

import torch
from torch import Tensor
from torch.profiler import record_function

from perfkit.errors import RunError, UsageError
from perfkit.options.schedule import Schedule, step_kind
from perfkit.phases import Phase, annotation
from perfkit.record.distributed.rank_group import RankGroup
from perfkit.record.injected_delay import InjectedDelays
from perfkit.record.monitor.step_times import BACKWARD, DATA, FORWARD, OPTIMIZER
from perfkit.record.recording.cycle_recorder import CycleRecorder
from perfkit.record.recording.flight_recorder import collectives_since
from perfkit.record.recording.host_sampler import HostSampler
from perfkit.record.recording.loader_watch import SampledWorkers, prepared_steps, watch_loaders
from perfkit.record.recording.manifest_writer import StepMeasurements
from perfkit.record.recording.pause_log import OpenPause, PauseLog
from perfkit.record.recording.profiler_options import ProfilerOptions
from perfkit.record.recording.step_measures import StepMeasures
from perfkit.record.spans import annotated
from perfkit.record.step_listener import Recorder, StepListener
from perfkit.records.common import UNNAMED
from perfkit.records.manifest import Injection, StepKind
from perfkit.records.per_run.pauses import PAUSE_PHASES, PausePhase
from perfkit.records.trace_header import PerfkitHeader, RecordedPipeline

if TYPE_CHECKING:
    from perfkit.record.monitor.step_monitor import StepMonitor
    from perfkit.record.recording.held_tensors import HeldTensors

_NO_MORE: Final = object()
_SPANS: Final[Mapping[Phase, int]] = {
    "data_loading": DATA,
    "forward": FORWARD,
    "backward": BACKWARD,
    "optimizer": OPTIMIZER,
}
"""Phases that the monitor tells apart."""

Batch = TypeVar("Batch")


class Recording:
    """Times, annotates and records the steps of one rank; whatever else follows them is in `listeners`.

    Args:
        device: Where the model is; determines what is recorded and which clock times the steps.
        folder: The run's folder; its name is that of the run.
        schedule: Which steps are recorded; None records nothing.
        workload: Name of the workload, for the trace's header.
        source: Name of the input source, for the trace's header.
        mesh: Size of each dimension of the mesh of ranks, outermost first, for the trace's header.
        injections: Delays to inject into phases of this rank.
        recorders: Further profilers that record the same steps.
        first_step: Number of the first step, by which the schedule counts too.
        monitor_limit: Size in bytes beyond which the step log of the monitor is rolled up; None is no monitor.
        most_steps: How many steps, the first ones, are measured for the manifest; None is all. Only without a schedule.
        sampling: Whether to sample what the main thread runs in recorded steps.
        light: Whether traces are written without operators.
    """

    first_pass: int | None = None
    """Steps of the first pass over the data; None until it has ended."""
    kind_in_progress: StepKind | None = None
    """What a capture makes of the step in progress; None without one."""
    pipeline: RecordedPipeline | None = None
    """The pipeline that the rank is part of, for the trace's header."""
    _batch_requested = False
    _opened: "AbstractContextManager[Recording] | None" = None
    _has_stopped = False

    def __init__(
        self,
        ranks: RankGroup,
        device: torch.device,
        folder: Path,
        schedule: Schedule | None,
        *,
        options: ProfilerOptions | None = None,
        workload: str = UNNAMED,
        source: str = UNNAMED,
        mesh: Mapping[str, int] | None = None,
        injections: Iterable[Injection] = (),
        recorders: Iterable[Recorder] = (),
        first_step: int = 0,
        monitor_limit: int | None = None,
        most_steps: int | None = None,
        sampling: bool = True,
        light: bool = False,
    ) -> None:
        self.folder = folder
        self._pid = os.getpid()
        self._first_step = first_step
        self._ranks = ranks
        self._device = device
        self._schedule = schedule
        self._options = options or ProfilerOptions()
        self._light = light
        self._names = workload, source
        self._mesh = dict(mesh or {})
        self._delays = InjectedDelays(injections, ranks.rank)
        self._measures = StepMeasures(device, most_steps)
        self.pauses = PauseLog()
        """Checkpoints, evaluations and logging."""
        self._make_profiler(recorders, sampling=sampling)
        self.monitor = None if monitor_limit is None else self._make_monitor(monitor_limit)
        """Records every step; None without one."""
        monitors = [] if self.monitor is None else [self.monitor]
        self.listeners: list[StepListener] = [*monitors, self._loaders, self._profiler]
        """What follows the steps, in the order in which it is called."""

    def _make_profiler(self, recorders: Iterable[Recorder], *, sampling: bool) -> None:
        """Make what records the steps of the schedule: torch's profiler, and the recorders that run beside it."""
        self._loaders = watch_loaders()
        self._sampler = HostSampler() if sampling else None
        self._held = self._options.profile_memory and not self._light and self._make_held_tensors()
        beside: list[Recorder] = [self._held] if self._held else []
        beside += [*recorders, *([self._sampler, SampledWorkers(self._loaders)] if self._sampler else [])]
        self._profiler = CycleRecorder(
            self._ranks,
            self._device,
            self.folder,
            self._schedule,
            self._first_step,
            self._options,
            beside,
            self._header,
            self._on_stopped,
            light=self._light,
        )

    @property
    def is_forked(self) -> bool:
        """Whether this process is a forked child of the one that is recorded: what it does is not recorded."""
        return os.getpid() != self._pid

    @property
    def rank(self) -> int:
        return self._ranks.rank

    @property
    def world_size(self) -> int:
        return self._ranks.world_size

    @property
    def on_host(self) -> bool:
        """Whether the host does the work itself: nothing waits for a device."""
        return self._device.type == "cpu"

    @property
    def steps(self) -> int:
        """Number of the step in progress; that of completed steps, if the first one is 0."""
        return self._first_step + self._measures.ended

    @property
    def last_load_ns(self) -> int:
        """How long the last completed step waited for its batch."""
        return self._measures.last_wait_ns

    @property
    def kinds(self) -> list[StepKind]:
        """Kind of each completed step, of those that are measured for the manifest."""
        return self._measures.kinds

    @property
    def recording(self) -> bool:
        """Whether the step in progress is recorded."""
        return self._profiler.recording

    @property
    def writing(self) -> bool:
        """Whether a cycle, or a capture, is being written."""
        return any(listener.writing for listener in self.listeners)

    @property
    def has_trace(self) -> bool:
        """Whether a trace has been written."""
        return self._profiler.traces > 0

    @property
    def has_moved(self) -> bool:
        """Whether a step could not be recorded because it ended in another thread than those before."""
        return self._profiler.has_moved

    def begin(self) -> None:
        self._ranks.current_activity = f"step {self.steps}"
        if self.monitor is not None:
            self.monitor.install()
            self.monitor.open(self.folder, self._ranks.rank, self._ranks.world_size, self._device)
        for listener in self.listeners:
            listener.begin()
        self._begin_step()

    def batches(self, loader: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches of one pass over `loader`; waiting for each is the phase data_loading."""
        batches: Iterator[Batch] | None = None
        while True:
            if not self._batch_requested:
                self._batch_requested = True
                self._begin_step()
            begin_ns = time.perf_counter_ns()
            with self.phase("data_loading"):
                # Loader workers also start here: waiting for them is waiting for input, but no load.
                start_ns = time.perf_counter_ns()
                batches = iter(loader) if batches is None else batches
                asked_ns = time.perf_counter_ns()
                batch = next(batches, _NO_MORE)
                end_ns = time.perf_counter_ns()
            waited_ns = time.perf_counter_ns() - begin_ns
            self._measures.waited(waited_ns, waited_ns - ((end_ns if batch is _NO_MORE else asked_ns) - start_ns))
            if batch is _NO_MORE:
                self.first_pass = self.steps if self.first_pass is None else self.first_pass
                return
            yield batch  # type: ignore[misc]  # not the sentinel

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Annotate a phase of the step; the time of `checkpoint`, `evaluation` and `logging` counts for no step."""
        if phase in PAUSE_PHASES:
            with self.pause(phase) as pause:
                pause.called_in(sys._getframe())
                yield
            return
        span = _SPANS.get(phase)
        if span is not None and self.monitor is not None:
            self.monitor.times.begin(span)
        with record_function(annotation(phase)):
            self._delays.delay(phase)
            yield
        if span is not None and self.monitor is not None:
            self.monitor.times.end(span)

    @contextmanager
    def pause(self, phase: PausePhase) -> Iterator[OpenPause]:
        """Annotate a checkpoint, an evaluation, or logging; what it writes can be noted in what this returns."""
        with self.pauses.pause(phase, self.steps) as pause, annotated(annotation(phase)):
            yield pause

    def step(self, loss: Tensor | float | None = None) -> None:
        """End a step and begin the next one.

        Args:
            loss: The step's loss for the manifest, if any. It is not kept; one on a device is not waited for.
        """
        if self.is_forked:
            return
        if self._has_stopped:
            raise UsageError("prof.step() after prof.stop(): call perfkit.start() again to record more")
        self._measures.end(self.pauses.total_ns)
        step = self.steps
        kind = self._kind(step)
        for listener in self.listeners:
            listener.end_step(step, kind, loss)
        self._measures.add(kind, loss)
        self._batch_requested = False
        self._delays.begin_step()
        self._ranks.current_activity = f"step {step + 1}"
        for listener in self.listeners:
            listener.between_steps()
        self._begin_step()

    def end(self) -> None:
        """End the run: write a cycle that the loop has left early, with the steps completed so far."""
        self._ranks.current_activity = "the end of the run"
        for listener in reversed(self.listeners):
            listener.end()

    def fail(self, error: BaseException) -> None:
        """Let the listeners end because the run has failed, and forget what is not written."""
        for listener in reversed(self.listeners):
            listener.fail(error)
        can_wait = self.world_size == 1 or self.on_host
        for listener in self.listeners:
            if can_wait or not listener.waits_for_device:
                listener.discard()

    def discard(self) -> None:
        for listener in self.listeners:
            listener.discard()

    def end_schedule(self, *, write: bool) -> None:
        """Record and time no more steps, which are plain from now on; what else listens follows them.

        Args:
            write: Whether to write a cycle that is in progress, with the steps completed so far.
        """
        ended = [one for one in (self._profiler, self._loaders) if one in self.listeners]
        self.listeners = [one for one in self.listeners if one not in ended]
        self._schedule, self._measures.most = None, self._measures.ended
        for one in ended:
            if write:
                one.end()
            else:
                one.discard()

    def end_followers(self, error: BaseException | None) -> None:
        """End what follows the steps besides the schedule; `error` is what has failed the run."""
        for listener in reversed(self.listeners):
            if listener not in (self._profiler, self._loaders):
                if error is None:
                    listener.end()
                else:
                    listener.fail(error)

    def __enter__(self) -> Self:
        """Begin the first step.

        Raises:
            BaseException: As `begin` does; the run is marked as failed.
        """
        try:
            self.begin()
        except BaseException as error:
            self.fail(error)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """End the run; after an error it is marked as failed."""
        if self.is_forked:
            return
        if error is not None:
            self.fail(error)
            return
        try:
            self.end()
        except BaseException as failed:
            if not self.is_forked:
                self.fail(failed)
            raise

    def hold(self, opened: "AbstractContextManager[Recording]") -> None:
        """Leave the recording open until `stop`; a program that ends without it has failed."""
        self._opened = opened
        atexit.register(self._abandon)

    def stop(self, error: BaseException | None = None) -> None:
        """End what `perfkit.start` has begun: write the run, or after an `error` mark it as failed; only once.

        Raises:
            StoreError: A trace cannot be written.
        """
        opened, self._opened = self._opened, None
        if opened is None:
            return
        self._has_stopped = True
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

    def measurements(self, wait: bool = True) -> StepMeasurements:
        """Return the measurements of the completed steps.

        Args:
            wait: Whether to wait for the device. After a failure it may never finish: without waiting, only the steps
                that it has finished are returned, and no losses since the last cycle that are on the device.
        """
        return self._measures.measured(wait, self._profiler.writing_ns, self._profiler.trace_bytes, self.pauses)

    def beside(self, ranks: RankGroup, folder: Path, schedule: Schedule, first_step: int) -> "Recording":
        """Return what records steps of the same run into another folder, as this one does."""
        workload, source = self._names
        beside = Recording(
            ranks,
            self._device,
            folder,
            schedule,
            options=self._options,
            workload=workload,
            source=source,
            mesh=self._mesh,
            first_step=first_step,
            sampling=self._sampler is not None,
            light=self._light,
        )
        beside.pauses, beside.pipeline = self.pauses, self.pipeline
        beside.listeners = [beside._profiler]  # else it would stop what this one still needs
        return beside

    def typical_step_ns(self, first: int) -> float | None:
        return self._measures.typical_ns(first)

    def last_loss(self) -> float | None:
        return self._measures.last_loss()

    def _kind(self, step: int) -> StepKind:
        kind = step_kind(self._schedule, step, prepared=prepared_steps())
        return self.kind_in_progress if self.kind_in_progress is not None and kind == "plain" else kind

    def _begin_step(self) -> None:
        self._measures.begin(self.pauses.total_ns)
        for listener in self.listeners:
            listener.begin_step()

    def _make_monitor(self, limit: int) -> "StepMonitor":
        from perfkit.record.monitor.step_monitor import StepMonitor  # needs more of torch than other recordings

        return StepMonitor(limit, self.pauses.state)

    def _make_held_tensors(self) -> "HeldTensors":
        from perfkit.record.recording.held_tensors import HeldTensors  # as above

        return HeldTensors()

    def _on_stopped(self) -> None:
        """Read what the device has computed; the warm-up steps that count were recorded like active ones."""
        self._measures.read_losses()
        first, last = (step - self._first_step for step in self._profiler.steps)
        self.kinds[first : last + 1] = ["active"] * (last + 1 - first)

    def _header(self, cycle: int) -> PerfkitHeader:
        workload, source = self._names
        start_ns = self._profiler.start_ns
        return PerfkitHeader(
            run=self.folder.name,
            rank=self._ranks.rank,
            world_size=self._ranks.world_size,
            cycle=cycle,
            workload=workload,
            source=source,
            mesh=self._mesh,
            light=self._light,
            steps=self._profiler.steps,
            collectives=collectives_since(start_ns),
            pipeline=self.pipeline,
            tensors=self._held.records() if self._held else None,
            pauses=self.pauses.since(start_ns),
            fetches=self._loaders.since(start_ns) or None,
            without_batch=self._loaders.without_batch_since(start_ns) or None,
            core_use=self._profiler.cores.read(),
            samples=self._sampler.recorded() if self._sampler else None,
            worker_samples=self._loaders.samples_since(start_ns) or None,
        )


Session = Recording
"""`perfkit.Session`: an earlier name of the same class."""
