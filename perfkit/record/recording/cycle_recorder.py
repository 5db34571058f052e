"""Runs the profilers through the cycles of a schedule, from the warm-up of each to the files that it leaves."""

import ctypes
import functools
import logging
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

import msgspec
import torch
from torch import Tensor, profiler

from perfkit.errors import RunError
from perfkit.options.schedule import Schedule
from perfkit.record.distributed.rank_group import RankGroup
from perfkit.record.processor_time import CoreMeter
from perfkit.record.recording.module_names import RecordedModules
from perfkit.record.recording.profiler_options import ProfilerOptions, activities, every_thread
from perfkit.record.recording.trace_export import MOST_TABLE_BYTES, write_key_averages, write_trace
from perfkit.record.spans import begin_span, end_span
from perfkit.record.step_listener import Recorder, StepListener
from perfkit.records.manifest import StepKind
from perfkit.records.trace_header import HEADER_KEY, PerfkitHeader
from perfkit.storage.run_folder import file_stem

_LOG: Final = logging.getLogger(__name__)

_KINETO_QUIET: Final = "6"

MOVED: Final = "a step ended in another thread than those before, where torch's profiler cannot be stopped"


_recorders: "WeakSet[CycleRecorder]" = WeakSet()
"""Those of this process."""


@functools.cache
def _stop_in_children() -> None:
    """Let a process that is forked in a recorded step record nothing.

    Such as a loader's worker: it inherits a profiler that nobody stops, and would keep 1 kB per operator to its end.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_stop_in_child)


def has_profiled() -> bool:
    """Return whether torch's profiler was made in this process, or in one that it was forked from."""
    return _stop_in_children.cache_info().currsize > 0


def _stop_in_child() -> None:
    if any(recorder.recording for recorder in _recorders):
        with suppress(AttributeError):  # torch calls it internal
            torch._C._autograd._enable_record_function(False)


class CycleRecorder(StepListener):
    """Records the cycles of one rank with torch's profiler, and with what runs beside it.

    Args:
        schedule: Which steps are recorded, counted from 0; None: no step is.
        header: Returns the trace's header of a cycle; called when everything beside torch's profiler has stopped.
        light: Whether traces are written without operators. The same is recorded: what slows one rank down more than
            others would be taken for a late rank.
        when_stopped: Called when the profiler has stopped, which has waited for the device.
    """

    waits_for_device = True
    recording = False
    """Whether the step in progress is recorded."""
    traces = 0
    """How many cycles have left a trace."""
    writing_ns = 0
    """How long it took to stop the profiler and to write all cycles, until all ranks had done so."""
    trace_bytes = 0
    """Size of the files of all traces."""
    has_moved = False
    """Whether a step ended in another thread than the one that must stop the profiler."""
    start_ns = 0
    """When the recording of the latest cycle started (`time.time_ns`)."""

    def __init__(
        self,
        ranks: RankGroup,
        device: torch.device,
        folder: Path,
        schedule: Schedule | None,
        first_step: int,
        options: ProfilerOptions,
        recorders: Iterable[Recorder],
        header: Callable[[int], PerfkitHeader],
        when_stopped: Callable[[], None],
        *,
        light: bool = False,
    ) -> None:
        self._schedule = schedule
        self._step = first_step - 1
        """Number of the step that ended last."""
        self._make_header = header
        self._when_stopped = when_stopped
        self._ranks = ranks
        self._device = device
        self._folder = folder
        self._options = options
        self._light = light
        self._recorders = list(recorders)
        if device.type == "cpu":
            # Kineto logs each start and stop on stderr like an error; without a device it has no errors to report.
            os.environ.setdefault("KINETO_LOG_LEVEL", _KINETO_QUIET)
        self._profiler: profiler.profile | None = None
        self._thread: threading.Thread | None = None
        """The one that must stop the profiler, since torch crashes elsewhere (segmentation fault); None: any may."""
        self._marker: Any = None
        self._modules = RecordedModules() if options.with_stack and not light else None
        self.cores = CoreMeter()
        """Measures the cores since the profiler was prepared for the latest cycle."""
        self._first_recorded = 0
        """Number of the first recorded step of the latest cycle."""

    @property
    def steps(self) -> tuple[int, int]:
        """Numbers of the first and last step of the latest cycle that count: warm-up steps as a rule do not."""
        first, last = self._first_recorded, self._step
        return (first if self._schedule is None else self._schedule.first_kept(first, last)), last

    def begin(self) -> None:
        self._prepare_step(self._step + 1)

    def end_step(self, step: int, _kind: StepKind, _loss: Tensor | float | None, /) -> None:
        self._step = step
        self._end_annotation()

    def between_steps(self) -> None:
        """Write a cycle that has ended, and put the profiler into the state of the next step."""
        if self._schedule is None:
            return
        if self._schedule.ends_cycle(self._step):
            self.writing = True
            self._write_cycle(self._schedule)
            self.writing = False
        self._prepare_step(self._step + 1)

    def end(self) -> None:
        """Write a cycle that the loop has left early, with the steps completed so far."""
        self._end_annotation()
        schedule = self._schedule
        if self.recording and schedule and schedule.records(self._step) and self._step >= self._first_recorded:
            self._write_cycle(schedule)
        self.discard()

    def discard(self) -> None:
        """Stop the profiler and discard what it has recorded; that of another thread is left to the process's end."""
        self._end_annotation()
        self._stop_others()
        if self._profiler is not None and self._is_in_its_thread:
            if not self.recording:
                self._profiler.start_trace()  # it was only warming up, and can only stop a trace that was started
            self._profiler.stop_trace()
        self._profiler, self.recording = None, False

    def _prepare_step(self, step: int) -> None:
        if self._schedule is None or self._schedule.state(step) == "plain":
            return
        self._check_thread()
        if self._profiler is None:
            self.cores.start()
            self._profiler = self._make_profiler()
            self._profiler.prepare_trace()
        if not self._schedule.records(step):
            return
        if not self.recording:
            self._start(self._profiler, step)
        self._marker = begin_span(f"ProfilerStep#{step}")

    def _end_annotation(self) -> None:
        if self._marker is not None:
            if self._is_in_its_thread:
                end_span(self._marker)
            self._marker = None

    def _write_cycle(self, schedule: Schedule) -> None:
        """Stop recording, write the files of the cycle on all ranks, and wait until all have done so."""
        self._check_thread()
        stopped = self._profiler
        if stopped is None:
            return
        begin_ns = time.perf_counter_ns()
        self._stop_others()
        cycle = schedule.cycle(self._step)
        stopped.add_metadata_json(HEADER_KEY, msgspec.json.encode(self._make_header(cycle)).decode())
        stopped.stop_trace()
        self._profiler, self.recording = None, False
        self._when_stopped()
        stem = file_stem(self._ranks.rank, cycle, schedule.repeat)
        activity, self._ranks.current_activity = self._ranks.current_activity, "the writing of traces"
        self._ranks.run_on_all(lambda: self._write_files(stopped, stem))
        self.traces += 1
        if schedule.repeat > 1:
            give_back_free_memory()
        _LOG.info("rank %d has written %s", self._ranks.rank, self._folder / f"{stem}.json.gz")
        # Otherwise the ranks that finish writing first would wait for the others in the next step's first collective.
        self._ranks.barrier()
        self._ranks.current_activity = activity
        self.writing_ns += time.perf_counter_ns() - begin_ns

    @property
    def _is_in_its_thread(self) -> bool:
        return self._profiler is None or self._thread in (None, threading.current_thread())

    def _check_thread(self) -> None:
        if not self._is_in_its_thread:
            self.has_moved = True
            raise RunError(MOVED)

    def _start(self, torch_profiler: profiler.profile, step: int) -> None:
        if self._modules is not None:
            self._modules.start()
        # Without this the first recorded collective includes the differences between the ranks' arrival times.
        if self._device.type != "cpu":
            torch.get_device_module(self._device.type).synchronize(self._device)
        self._ranks.barrier()
        _LOG.debug("rank %d records from step %d", self._ranks.rank, step)
        self.start_ns = time.time_ns()
        self._first_recorded = step
        torch_profiler.start_trace()
        self.recording = True
        for recorder in self._recorders:
            recorder.start()

    def _stop_others(self) -> None:
        for recorder in self._recorders:
            recorder.stop()

    def _make_profiler(self) -> profiler.profile:
        _stop_in_children()
        _recorders.add(self)
        thread = threading.current_thread()
        # Another thread than the main one may end before the recording.
        config = None if thread is threading.main_thread() else every_thread()
        self._thread = thread if config is None else None
        options = msgspec.structs.asdict(self._options)
        # Older torch says at each start that events of other cycles are not kept: each cycle is exported by itself.
        warnings.filterwarnings("ignore", "Warning: Profiler clears events", UserWarning)
        return profiler.profile(activities=activities(self._device.type), experimental_config=config, **options)

    def _write_files(self, stopped: profiler.profile, stem: str) -> None:
        modules = None if self._modules is None else self._modules.names(stopped)
        target, table = self._folder / f"{stem}.json.gz", self._folder / f"{stem}.key_averages.txt"
        size = write_trace(stopped, target, modules, light=self._light)
        self.trace_bytes += target.stat().st_size
        if self._light:
            _LOG.debug("%s is not written: a light rank tells nothing of operators", table)
        elif size <= MOST_TABLE_BYTES:
            write_key_averages(stopped, table, self._options.record_shapes)
        else:
            _LOG.info("%s is not written: torch takes too long for a trace of %d bytes", table, size)
        for recorder in self._recorders:
            recorder.write(self._folder / stem)


def give_back_free_memory() -> None:
    """Let the allocator return free pages (a few milliseconds); does nothing if it is not glibc's."""
    with suppress(AttributeError, OSError, TypeError):  # musl, macOS, Windows
        ctypes.CDLL(None).malloc_trim(0)
