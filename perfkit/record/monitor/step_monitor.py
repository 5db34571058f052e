"""Records every step of this rank as it ends, in its step log.

Nothing that goes wrong here reaches the program, whose results, random numbers and exit code stay as they are: the
monitor reports it in one line, and stops.
"""

import os
import threading
from contextlib import suppress
from math import nan
from pathlib import Path
from time import perf_counter_ns, time_ns
from typing import Final

import torch
from torch import Tensor

from perfkit.options.recording import DEFAULT_MOST_BYTES
from perfkit.record.messages import one_line, print_warning
from perfkit.record.monitor.backward_loss import BackwardLoss
from perfkit.record.monitor.device_steps import DeviceSteps
from perfkit.record.monitor.samples import Sample, Sampler
from perfkit.record.monitor.step_times import DATA, StepTimes
from perfkit.record.monitor.torch_hooks import MonitorHooks
from perfkit.record.own_threads import start_own_thread
from perfkit.record.step_listener import PauseState, StepListener
from perfkit.records.manifest import StepKind
from perfkit.records.monitor import KIND_NUMBERS, LOSS_GIVEN, UNKNOWN, StepRecord
from perfkit.storage.step_log.writer import StepLogWriter

_SAMPLE_S: Final = 1.0
_MOST_BEFORE_LOG: Final = 64
"""Records that are kept until there is a log."""


class StepMonitor(StepListener):
    """The monitor of this process.

    Args:
        pauses: Whether training pauses for a checkpoint, an evaluation or logging, and for how long it has.
    """

    def __init__(self, most_bytes: int = DEFAULT_MOST_BYTES, pauses: PauseState | None = None) -> None:
        self._most_bytes = most_bytes
        self._pauses = pauses = pauses or PauseState()
        self._pid = os.getpid()
        self._unix_ns = time_ns() - perf_counter_ns()
        self._begin_ns = perf_counter_ns()
        self._paused_before_ns = 0
        self._log: StepLogWriter | None = None
        self._before_log: list[StepRecord] = []
        self._device: DeviceSteps | None = None
        self._sample = Sample()
        self._stopped = threading.Event()
        self._is_stopped = False  # the same, and cheaper to read
        self._thread: threading.Thread | None = None
        self.times = StepTimes(pauses)
        """Where the host's time goes within the step in progress."""
        self.losses = BackwardLoss()
        """What backward passes of the step in progress began from."""
        self._hooks = MonitorHooks(self.times, self.losses)
        self.has_failed = False

    @property
    def is_on(self) -> bool:
        """Whether steps are recorded in this process."""
        return not self._stopped.is_set() and os.getpid() == self._pid

    @property
    def last_data_ns(self) -> int | None:
        """How long the step that has ended waited for its batch, until the next one begins; None if unknown."""
        last = self.times.take()[DATA] if self.is_on else UNKNOWN
        return None if last == UNKNOWN else last

    def install(self) -> None:
        try:
            self._hooks.install()
        except Exception as error:  # noqa: BLE001  the outermost boundary: beyond it is the program
            self._give_up(error)

    def open(self, folder: Path, rank: int, world_size: int, device: torch.device) -> None:
        if not self.is_on:
            return
        try:
            sampler = Sampler(device)
            self._sample = sampler.take()
            self._device = None if device.type == "cpu" else DeviceSteps(device)
            self._log = StepLogWriter(folder, rank, world_size, str(device), self._most_bytes)
            for record in self._before_log:
                self._log.append(record)
            self._thread = start_own_thread("monitor", self._take_samples, sampler)
        except Exception as error:  # noqa: BLE001  the outermost boundary: beyond it is the program
            self._give_up(error)

    def begin_step(self, at_ns: int | None = None) -> None:
        if self._is_stopped:
            return
        try:
            now = perf_counter_ns()
            self._paused_before_ns = self._pauses.total_ns
            self.times.start(now)
            if self.losses.wanted:
                self.losses.start()
            if self._device is not None:
                self._device.begin()
            self._begin_ns = now if at_ns is None else at_ns
        except Exception as error:  # noqa: BLE001  the outermost boundary: beyond it is the program
            self._give_up(error)

    def end_step(self, step: int, kind: StepKind, loss: Tensor | float | None = None) -> None:
        """Write the record of a step; its loss is what backward passes began from if that is `wanted`."""
        if self._is_stopped:
            return
        try:
            now = perf_counter_ns()
            if self.losses.wanted:
                loss = self.losses.get()
            value = loss if loss is None or type(loss) is float else _value(loss)
            begin_ns, sample = self._begin_ns, self._sample
            paused_ns = self._pauses.total_ns - self._paused_before_ns
            step_ns = now - begin_ns - paused_ns
            if step_ns < 0:
                step_ns = 0
            # By position, in the order of the fields of a `StepRecord`: this is done in every step.
            values = (
                1,
                KIND_NUMBERS[kind],
                sample.flags if value is None else sample.flags | LOSS_GIVEN,
                (now - sample.taken_ns) // 1_000_000 if now > sample.taken_ns > 0 else UNKNOWN,
                step,
                begin_ns + self._unix_ns,
                step_ns,
                step_ns,
                step,
                *self.times.take(),
                paused_ns,
                UNKNOWN,
                nan if value is None else value,
                *sample.columns,
            )
            if self._device is None and self._log is not None:
                self._log.append(values)
            else:
                self._end_elsewhere(StepRecord._make(values), loss)
        except Exception as error:  # noqa: BLE001  the outermost boundary: beyond it is the program
            self._give_up(error)

    def _end_elsewhere(self, record: StepRecord, loss: Tensor | float | None) -> None:
        """End a step that the device may not have finished, or before there is a log."""
        if self._device is None:
            self._emit(record)
            return
        self._device.end(record, loss if isinstance(loss, Tensor) and not loss.is_cpu else None)
        for finished in self._device.finished():
            self._emit(finished)

    def close(self) -> None:
        """Write what is left, stop, and remove the hooks: not from within one of torch's hooks."""
        if os.getpid() != self._pid:
            return
        try:
            if not self._stopped.is_set() and self._device is not None:
                for record in self._device.rest():
                    self._emit(record)
        except Exception as error:  # noqa: BLE001  the outermost boundary: beyond it is the end of the program
            self._give_up(error)
        self._stop()
        with suppress(Exception):
            self._hooks.remove()
        if self._thread is not None:
            self._thread.join(timeout=5 * _SAMPLE_S)

    def discard(self) -> None:
        self.close()

    def _emit(self, record: StepRecord) -> None:
        if self._log is not None:
            self._log.append(record)
        elif len(self._before_log) < _MOST_BEFORE_LOG:
            self._before_log.append(record)

    def _take_samples(self, sampler: Sampler) -> None:
        try:
            while not self._stopped.wait(_SAMPLE_S):
                self._sample = sampler.take()
                if self._log is not None and self._log.is_full:
                    self._log.roll_up()
        except Exception as error:  # noqa: BLE001  the outermost boundary of this thread, which is inside a program
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        if self._stopped.is_set():
            return
        self.has_failed = True
        self._stop()
        with suppress(Exception):
            print_warning(f"the monitor has stopped, and the run goes on without it: {one_line(error)}")

    def _stop(self) -> None:
        """Record no more. The hooks stay, idle: torch may be calling them just now, and they cannot be removed then."""
        self._is_stopped = True
        self._stopped.set()
        self.times.is_stopped = True
        if self._log is not None:
            with suppress(OSError):
                self._log.close()


def _value(loss: Tensor | float | None) -> float | None:
    """Return a loss that is on the host; None if there is none, it is elsewhere, or it is not one number."""
    if loss is None or (isinstance(loss, Tensor) and not (loss.is_cpu and loss.numel() == 1)):
        return None
    try:
        return float(loss.item() if isinstance(loss, Tensor) else loss)
    except (TypeError, ValueError, RuntimeError):
        return None
