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
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, Self, TypeVar

import torch
from torch import Tensor
from torch.profiler import record_function

from perfkit.errors import RunError, UsageError
from perfkit.options.schedule import Schedule, step_kind
from perfkit.phases import Phase, annotation
from perfkit.record.distributed.rank_group import RankGroup
from perfkit.record.injected_delay import injected_delay
from perfkit.record.monitor.step_times import BACKWARD, DATA, FORWARD, OPTIMIZER
from perfkit.record.recording.cycle_recorder import CycleRecorder
from perfkit.record.recording.flight_recorder import collectives_since
from perfkit.record.recording.host_sampler import HostSampler
from perfkit.record.recording.loader_watch import SampledWorkers, prepared_steps, watch_loaders
from perfkit.record.recording.loss_log import LossLog
from perfkit.record.recording.manifest_writer import StepMeasurements
from perfkit.record.recording.pause_log import OpenPause, PauseLog
from perfkit.record.recording.profiler_options import ProfilerOptions
from perfkit.record.recording.spans import annotated
from perfkit.record.recording.step_clock import step_clock
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
    """

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
    ) -> None:
        self.folder = folder
        self._pid = os.getpid()
        self._first_step = first_step
        self._ended = 0
        self._most_steps = most_steps
        self._ranks = ranks
        self._device = device
        self._schedule = schedule
        self._options = options or ProfilerOptions()
        self._names = workload, source
        self._mesh = dict(mesh or {})
        self._delays_s: dict[Phase, float] = defaultdict(float)
        for injection in injections:
            if injection.rank in (None, ranks.rank):
                self._delays_s[injection.phase] += injection.delay_ns / 1e9
        self._clock = step_clock(device)
        self._delayed: set[Phase] = set()
        self._batch_requested = False
        self._waited_ns = self._loaded_ns = 0
        """For input in this step, and of that for its batches."""
        self.first_pass: int | None = None
        """Steps of the first pass over the data; None until it has ended."""
        self._losses = LossLog()
        self._loaders = watch_loaders()
        self.pauses = PauseLog()
        """Checkpoints, evaluations and logging."""
        self._paused_ns = 0
        self._sampler = HostSampler() if sampling else None
        self._held = self._options.profile_memory and self._make_held_tensors()
        beside: list[Recorder] = [self._held] if self._held else []
        beside += [*recorders, *([self._sampler, SampledWorkers(self._loaders)] if self._sampler else [])]
        self._profiler = CycleRecorder(
            ranks,
            device,
            folder,
            schedule,
            first_step,
            self._options,
            beside,
            self._header,
            self._on_stopped,
        )
        self.monitor = None if monitor_limit is None else self._make_monitor(monitor_limit)
        """Records every step; None without one."""
        self.listeners: list[StepListener] = [self._loaders, self._profiler]
        """What follows the steps, in the order in which it is called."""
        if self.monitor is not None:
            self.listeners.insert(0, self.monitor)
        self.load_ns: list[int] = []
        """How long each completed step waited for its batch, of those that are measured for the manifest."""
        self.last_load_ns = 0
        """How long the last completed step did."""
        self.kinds: list[StepKind] = []
        """Kind of each completed step, of those that are measured for the manifest."""
        self.kind_in_progress: StepKind | None = None
        """What a capture makes of the step in progress; None without one."""
        self.pipeline: RecordedPipeline | None = None
        """The pipeline that the rank is part of, for the trace's header."""
        self._opened: AbstractContextManager[Recording] | None = None
        self._has_stopped = False

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
        return self._first_step + self._ended

    @property
    def recording(self) -> bool:
        """Whether the step in progress is recorded."""
        return self._profiler.recording

    @property
    def writing(self) -> bool:
        """Whether a cycle is being written."""
        return self._profiler.writing

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
            self._waited_ns += waited_ns
            self._loaded_ns += waited_ns - ((end_ns if batch is _NO_MORE else asked_ns) - start_ns)
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
            if phase in self._delays_s and phase not in self._delayed:
                self._delayed.add(phase)  # a phase in several parts is delayed once per step
                injected_delay(self._delays_s[phase])
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
        step, measured = self.steps, self._measures_step
        if measured:
            self._clock.end(self.pauses.total_ns - self._paused_ns)
        kind = self._kind(step)
        for listener in self.listeners:
            listener.end_step(step, kind, loss)
        if measured:
            self.kinds.append(kind)
            self.load_ns.append(self._loaded_ns)
        self._ended += 1
        self._losses.add(loss, kept=measured)
        self.last_load_ns, self._waited_ns, self._loaded_ns = self._waited_ns, 0, 0
        self._batch_requested = False
        self._delayed.clear()
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
        """Record and time no more steps; what else listens follows them on.

        Args:
            write: Whether to write a cycle that is in progress, with the steps completed so far.
        """
        ended = [one for one in (self._profiler, self._loaders) if one in self.listeners]
        self.listeners = [one for one in self.listeners if one not in ended]
        self._most_steps = self._ended
        for one in ended:
            if write:
                one.end()
            else:
                one.discard()

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
        wall_ns = self._clock.wall_ns(wait)
        if wait:
            self._losses.read()
        count = len(wall_ns)
        return StepMeasurements(
            kinds=self.kinds[:count],
            wall_ns=wall_ns,
            load_ns=self.load_ns[:count],
            loss=self._losses.values(count),
            writing_ns=self._profiler.writing_ns,
            pauses=self.pauses.all(),
            earlier_pauses=self.pauses.earlier(),
            omitted=self._ended - len(self.kinds),
        )

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
        )
        beside.pauses, beside.pipeline = self.pauses, self.pipeline
        beside.listeners = [beside._profiler]  # else it would stop what this one still needs
        return beside

    def typical_step_ns(self, first: int) -> float | None:
        """Return the median time (ns) of the steps from `first` on, without waiting for the device; None if unknown.

        Of steps without the profiler, if there are any.
        """
        wall_ns = self._clock.wall_ns(wait=False)
        known = list(zip(self.kinds[first:], wall_ns[first:], strict=False))
        plain = [ns for kind, ns in known if kind == "plain"]
        return median(plain or [ns for _, ns in known]) if known else None

    def last_loss(self) -> float | None:
        """Return the loss of the last step; None if there is none, or if reading it would wait for the device."""
        return self._losses.last()

    def _kind(self, step: int) -> StepKind:
        kind = step_kind(self._schedule, step, prepared=prepared_steps())
        return self.kind_in_progress if self.kind_in_progress is not None and kind == "plain" else kind

    @property
    def _measures_step(self) -> bool:
        """Whether the step in progress is measured for the manifest."""
        return self._most_steps is None or self._ended < self._most_steps

    def _begin_step(self) -> None:
        if self._measures_step:
            self._clock.begin()
        self._paused_ns = self.pauses.total_ns
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
        self._losses.read()
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
