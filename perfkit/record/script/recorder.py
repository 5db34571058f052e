"""Records a training script that does not import perfkit: hooks of torch report what ends a step.

A step lasts from one end to the next, by default from the end of one optimizer step to the end of the next. What comes
before the first end is step 0, timed from the start of the script and `cold`; the schedule counts from step 1. After
the schedule, a number of plain steps are timed, and then the script is left alone.

Whatever goes wrong in perfkit is reported in one line, and the script continues without being recorded.
"""

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn
from torch.optim import Optimizer

from perfkit.base.polling import wait_until
from perfkit.errors import RunError, StoreError
from perfkit.options.schedule import default_steps, step_kind
from perfkit.options.script import ScriptConfig
from perfkit.record.distributed.topology import device_in_use
from perfkit.record.endings import TerminatedError
from perfkit.record.hangs.messages import count_messages
from perfkit.record.hangs.worker_stacks import follow_forks
from perfkit.record.lifecycle.failure_guard import fail_with_parent, record_failure
from perfkit.record.recording.cycle_recorder import has_profiled
from perfkit.record.recording.loader_watch import stop_watching_loaders, watch_loaders
from perfkit.record.recording.manifest_writer import create_run
from perfkit.record.recording.recording import Recording
from perfkit.record.run_listeners import FollowedRun, listen
from perfkit.record.script.coordination import RankExchange, ScriptRankGroup, find_ranks
from perfkit.record.script.first_step import BegunRun, FirstStepWatch, RunBeginning
from perfkit.record.script.hang_watch import ScriptHangWatch
from perfkit.record.script.hooks.ending_hooks import SigtermHook, before_exit_at_once
from perfkit.record.script.hooks.pass_hooks import Annotations, BackwardPasses, ForwardPasses
from perfkit.record.script.hooks.script_pauses import ScriptPauses, UnrecordedPauses
from perfkit.record.script.hooks.torch_hooks import (
    after_gradients,
    after_optimizer_step,
    after_scaler_step,
    around_backward,
    before_optimizer_step,
    before_profiler,
    device_of,
    in_backward,
)
from perfkit.record.script.manifest_assembly import script_topology
from perfkit.record.script.marker import on_step
from perfkit.record.script.outcome import OutcomeReporter, count_steps, explain_no_steps
from perfkit.record.script.rank_environment import launcher_rank
from perfkit.record.script.replica_checks import ReplicaChecks
from perfkit.record.script.samples import SampleCounter
from perfkit.record.script.script_run import ScriptRun, describe_run, make_recording, possible_captures
from perfkit.record.script.step_counter import StepCounter
from perfkit.record.step_listener import PauseState
from perfkit.storage.run_folder import read_manifest

if TYPE_CHECKING:
    from perfkit.record.monitor.step_monitor import StepMonitor

TIMED_AFTER: Final = 100
"""Steps that are timed after the schedule: enough for a median, and a bound on what is kept in memory."""

_SIGTERM_WAIT_S: Final = 1.0
"""How long a rank that is to end waits for one of its threads which begins the run."""
_BUSY_WAIT_S: Final = 0.4
"""How long a script that ends at once waits until perfkit has ended a step: part of what `exit_hook` allows in all."""


class ScriptRecorder:
    """Records the steps of one process.

    Args:
        begin_ns: When the script began (`time.perf_counter_ns`).
        trace_dir: The folder of the runs, which `config` may name relative to where the script began.
    """

    def __init__(
        self, script: str, arguments: Sequence[str], config: ScriptConfig, begin_ns: int, trace_dir: Path
    ) -> None:
        self._script = script
        self._arguments = list(arguments)
        self._config = config
        self._begin_ns = begin_ns
        self._trace_dir = trace_dir
        self._schedule = config.plan
        self._pid = os.getpid()
        self._counter = StepCounter(config.step_rule)
        self._annotations = Annotations()
        self._backward = BackwardPasses(self._annotations, self._on_backward, self._on_error)
        module = config.step_rule.name if self._counts_forward else None  # else it is the name of an optimizer
        checks = ReplicaChecks(enabled=config.check_replicas, is_recorded=lambda: self._is_active)
        self._samples = SampleCounter(config.samples_per_step, checks)
        self._forward = ForwardPasses(
            module, self._annotations, self._on_forward, self._on_error, self._samples.note_inputs
        )
        self._device: torch.device | None = None
        self._pause_state = PauseState()
        self._pauses = ScriptPauses(self._pause_keeper, self._pause_state)
        self._unrecorded = UnrecordedPauses(self._pause_state, self._steps)
        self._monitor = self._begin_monitor()
        self._outcome = OutcomeReporter(script, config)
        self._busy = False
        self._over = False
        self._has_ended = False
        self._backward_threads = weakref.WeakSet[threading.Thread]()
        self.missed = False
        """Whether the script has ended well, and what `--step-on` names was not among what ran."""
        self._run: ScriptRun | None = None
        self._beginning = RunBeginning(self._begin_run)
        self._first_step: FirstStepWatch | None = None
        """None if the first step is not watched."""
        self._sigterm = SigtermHook(lambda: self.end(TerminatedError("ended by SIGTERM")), self._on_sigterm_while_stuck)
        if config.hang_after_s is not None:
            self._first_step = FirstStepWatch(config.hang_after_s, self._beginning, self._find_ranks, self._is_busy)

    @property
    def has_begun(self) -> bool:
        return self._run is not None

    @property
    def is_aborted_at_exit(self) -> bool:
        """Whether this is a forked child that cannot end as others do: the profiler's library waits for its threads."""
        return os.getpid() != self._pid and has_profiled()

    def attach(self) -> None:
        try:
            follow_forks()
            count_messages()
            if self._monitor is not None:
                self._monitor.install()  # first, so that what ends a step ends the optimizer's part of it before
            before_optimizer_step(self._samples.checks.before_update)
            after_optimizer_step(self._on_optimizer_step)
            after_scaler_step(self._on_scaler_step)
            around_backward(self._backward.begin, self._backward.end)
            after_gradients(self._counter.after_gradients)
            before_profiler(self._on_other_profiler)
            self._pauses.attach()
            watch_loaders()  # before the script makes its loaders
            on_step(self._on_marker)
            before_exit_at_once(self._on_exit_at_once)
            self._samples.attach()
            if self._counts_forward:
                self._forward.calls.install()
            if self._first_step is not None:
                self._sigterm.install()
                self._first_step.start()
        except Exception as error:  # noqa: BLE001  this runs inside the script's `import torch`
            self._on_error(error)

    def end(self, error: BaseException | None) -> None:
        """Write what is known once the script has ended, or is about to; `error` is why, None if it ended well."""
        if os.getpid() != self._pid:
            return
        self._has_ended = True
        if self._monitor is not None:
            self._monitor.close()
        self._stop_first_step()
        run = self._run
        if run is None:
            self._over = True
            stop_watching_loaders()
            self._report_nothing_recorded(error)
            with self._errors_contained():
                folder = self._beginning.leave(error, _SIGTERM_WAIT_S if isinstance(error, TerminatedError) else -1)
                if folder is not None:
                    self._outcome.report_end(folder, count_steps(len(read_manifest(folder).step_kinds)))
            return
        run.hangs.stop(error)
        if self._busy:  # a signal has arrived while a trace was being written
            run.fail_at_once(error or RunError("ended"))
            return
        with self._errors_contained():
            run.recording.end_followers(error)
            self._stop(run, error)
            run.complete(error, self._counter, self._outcome)

    @property
    def _counts_forward(self) -> bool:
        return self._config.step_rule.kind == "forward"

    @property
    def _is_active(self) -> bool:
        """Whether the step in progress is one of those that are recorded."""
        return self._run is not None and step_kind(self._schedule, self._run.recording.steps) == "active"

    def _is_busy(self) -> bool:
        return self._busy or self._pauses.in_progress

    def _stop_first_step(self) -> None:
        """Watch the first step no longer: it has ended, or will not be recorded."""
        if self._first_step is not None:
            self._first_step.stop()

    def _steps(self) -> int:
        return 0 if self._run is None else self._run.recording.steps

    def _begin_monitor(self) -> "StepMonitor | None":
        """Begin the monitor, if there is to be one: its first step begins with the script."""
        if self._config.monitor_limit is None:
            return None
        from perfkit.record.monitor.step_monitor import StepMonitor  # needs more of torch than the recording

        monitor = StepMonitor(self._config.monitor_limit, self._pause_state)
        monitor.losses.wanted = True
        monitor.begin_step(self._begin_ns)
        return monitor

    def _pause_keeper(self) -> Recording | UnrecordedPauses | None:
        if self._run is None:
            return None if self._monitor is None else self._unrecorded
        if self._busy:
            return self._unrecorded
        return (self._run.captures.recording_in_progress or self._unrecorded) if self._over else self._run.recording

    def _on_optimizer_step(self, optimizer: Optimizer) -> None:
        self._pauses.trains()
        self._note(optimizer, lambda: self._counter.after_optimizer_step(optimizer, in_backward=in_backward()))

    def _on_scaler_step(self, optimizer: Any) -> None:
        if isinstance(optimizer, Optimizer):
            self._note(optimizer, lambda: self._counter.after_scaler_step(optimizer))

    def _on_backward(self, loss: Any) -> None:
        self._pauses.trains()
        self._backward_threads.add(threading.current_thread())
        self._note(loss, self._counter.after_backward)

    def _on_forward(self, module: nn.Module) -> None:
        if self._counts_forward:
            self._note(module, self._counter.after_forward)

    def _on_marker(self, samples: int | None) -> None:
        self._samples.note_given(samples)
        self._note(None, self._counter.after_marker)

    def _note(self, subject: Any, ends_step: Callable[[], bool]) -> None:
        """Note an event of the script, and end its step if `ends_step` returns so.

        Nothing that goes wrong here may reach the script.
        """
        if os.getpid() != self._pid:  # a forked child trains something else
            return
        try:
            if self._run is None and not self._over:
                device = device_of(subject)
                if device is not None and device.type != "meta":  # on which nothing runs
                    self._device = device
            ended = ends_step()
        except Exception as error:  # noqa: BLE001
            self._on_error(error)
        else:
            if ended:
                self._step_ended()

    def _step_ended(self) -> None:
        run = self._run
        self._samples.end_step()
        if not self._over:
            self._pauses.trains()  # a step that ends in an "evaluation" is one of a model that is evaluated only
            self._end_step()
        elif run is not None:
            self._end_unrecorded_step(run)

    def _end_step(self) -> None:
        with self._errors_contained():
            run = self._run or self._start()
            run.recording.step()
            scheduled = default_steps(None) if self._schedule is None else self._schedule.steps
            if run.recording.steps == scheduled:
                run.leave_record()
            if run.recording.steps > scheduled + TIMED_AFTER:
                self._stop(run, None)
            self._annotate(run.recording.recording or run.captures.annotates)

    def _end_unrecorded_step(self, run: ScriptRun) -> None:
        """End a step after the schedule, which only a capture may record."""
        self._busy = True  # a capture's profiler is none of the script's own
        try:
            run.recording.step()
        finally:
            self._busy = False
        captured = run.recording.kind_in_progress
        if captured is not None:
            self._annotate(run.captures.annotates)
        if captured == "cold":
            stop_watching_loaders()

    def _annotate(self, enabled: bool) -> None:
        """Annotate forward and backward passes from now on, or no more."""
        self._annotations.enable(enabled)
        if self._counts_forward:
            return
        if enabled:
            self._forward.calls.install()
        else:
            self._forward.calls.remove()

    def _on_error(self, error: Exception) -> None:
        """Report an error of perfkit's own; the script continues without being recorded."""
        if self._over:
            if self._has_ended and isinstance(error, StoreError):
                self._outcome.report_incomplete(error)
            return
        self._over = self._outcome.explained = True
        self._stop_first_step()
        self._outcome.report_error(error)
        self._give_up(error)

    def _on_other_profiler(self) -> None:
        if self._run is not None and not self._busy and os.getpid() == self._pid:
            self._run.captures.abandon("the script began to use its own profiler")
        if self._busy or self._over or os.getpid() != self._pid:
            return
        self._outcome.explained = True
        if self._run is None:
            self._over = True
            self._stop_first_step()
            stop_watching_loaders()
        else:
            with self._errors_contained():
                self._run.recording.end_schedule(write=False)
                self._stop(self._run, None)
        if launcher_rank().rank == 0:
            self._outcome.report_own_profiler(has_begun=self._run is not None)

    def _start(self) -> ScriptRun:
        threads = self._backward_threads
        if threads and threading.current_thread() not in threads and not self._counts_forward:
            # Forward and backward passes would be missing, and pass for idle time.
            raise RunError(
                "the optimizer steps in another thread than backward passes run in: --step-on backward counts those"
            )
        cold_ns = time.perf_counter_ns() - self._begin_ns
        self._stop_first_step()
        ranks, folder, hangs = self._beginning.get()
        device = self._device or device_in_use()
        topology = script_topology(ranks.info, device)
        recording = make_recording(self._config, ranks, device, folder, self._pause_state)
        monitor = self._monitor
        rules = possible_captures(self._config, topology, ranks)
        load_ns = (lambda: None) if monitor is None else (lambda: monitor.last_data_ns)
        followed = FollowedRun(recording, topology, self._config, self._schedule, None, rules, load_ns)
        captures = listen(followed, None, hangs)
        self._run = ScriptRun(recording, ranks, topology, hangs, captures, cold_ns, self._samples)
        self._sigterm.install()
        recording.begin()
        if monitor is not None:  # not before: its step in progress has begun with the script
            monitor.open(folder, recording.rank, recording.world_size, device)
            recording.listeners.insert(0, monitor)
        return self._run

    def _find_ranks(self) -> RankExchange:
        return find_ranks(self._trace_dir, self._config.workload, own_connection=self._first_step is not None)

    def _begin_run(self) -> BegunRun:
        timeout = timedelta(microseconds=self._config.timeout_ns / 1000)
        barriers = 0 if self._schedule is None else 2 * self._schedule.repeat
        ranks = ScriptRankGroup(*self._find_ranks(), barriers, timeout)
        topology = script_topology(ranks.info, self._device or device_in_use())
        script = {"script": self._script, "arguments": self._arguments}
        counted = {} if self._counter.counted is None else {"optimizer": self._counter.counted.class_name}
        description = describe_run(self._config, script | counted)
        folder = ranks.agree_on_folder(
            lambda: create_run(ranks.world_size, topology, description, self._trace_dir, self._config.name)
        )
        fail_with_parent(lambda: folder, ranks.rank)
        hangs = ScriptHangWatch(folder, ranks.rank, ranks.world_size, self._config, self._is_busy)
        return BegunRun(ranks, folder, hangs)

    def _on_exit_at_once(self, code: int) -> None:
        """Write what is known, in another thread than that of the steps: what runs there must not be stopped."""
        if self._has_ended:
            return
        self._has_ended = True
        try:
            if self._run is None:
                self._beginning.leave(SystemExit(code) if code else None, _SIGTERM_WAIT_S)
            # Another thread of the script may end a step; if that writes a trace, it will not be complete.
            elif not wait_until(lambda: not self._busy, _BUSY_WAIT_S):
                self._run.fail_at_once(RunError(f"ended with exit code {code} (os._exit) while perfkit ended a step"))
            else:
                self._run.leave_at_once(code, self._counter, self._outcome)
        except Exception as error:  # noqa: BLE001  the outermost boundary of the thread
            self._outcome.report_incomplete(error)

    def _on_sigterm_while_stuck(self) -> None:
        """Mark the run as failed, without what only the main thread knows: it does not return to Python."""
        error = TerminatedError("ended by SIGTERM, stuck")
        if self._run is not None:
            self._run.fail_at_once(error)
        else:
            self._beginning.leave(error, _SIGTERM_WAIT_S)

    def _stop(self, run: ScriptRun, error: BaseException | None) -> None:
        if self._over:
            return
        self._over = True
        self._annotate(False)
        run.stop(error)

    def _report_nothing_recorded(self, error: BaseException | None) -> None:
        if self._outcome.explained or error is not None:
            return
        reason = explain_no_steps(self._config, self._counter, list(self._forward.seen))
        self.missed = reason.missed
        own = launcher_rank()
        if own.rank == 0:
            self._outcome.report_nothing_recorded(reason, one_of_several=own.world_size > 1)

    @contextmanager
    def _errors_contained(self) -> Iterator[None]:
        """Let no error of perfkit's reach the script: it ends the recording instead."""
        self._busy = True
        try:
            yield
        except Exception as error:  # noqa: BLE001  the outermost boundary: beyond it is the script
            self._on_error(error)
        finally:
            self._busy = False

    def _give_up(self, error: Exception) -> None:
        with suppress(Exception):
            self._annotate(False)
        run = self._run
        if run is None:
            stop_watching_loaders()
            with suppress(Exception):
                self._beginning.leave(error)
            return
        run.captures.fail(error)
        with suppress(Exception):  # what is broken stays broken
            run.ranks.stop_waiting()
            run.recording.end_schedule(write=False)
        if self._monitor is not None:  # it goes on: the step in progress begins now
            self._monitor.begin_step()
        with suppress(Exception):
            record_failure(run.recording.folder, run.ranks.rank, error, None)
