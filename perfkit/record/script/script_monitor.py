"""The monitor of a script's rank, which goes on when the recording is over."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch

from perfkit.options.script import ScriptConfig
from perfkit.record.monitor.step_times import DATA
from perfkit.record.recording.pause_log import OpenPause, PauseLog
from perfkit.record.recording.recording import Recording
from perfkit.record.step_listener import PauseState
from perfkit.records.manifest import StepKind
from perfkit.records.monitor import UNKNOWN
from perfkit.records.per_run.pauses import PausePhase

if TYPE_CHECKING:
    from perfkit.record.monitor.step_monitor import StepMonitor


class ScriptMonitor:
    """Follows all steps of a script, if that is wanted; otherwise it only keeps pauses.

    Args:
        pauses: Whether the script pauses for a checkpoint or an evaluation, and for how long it has.
        begin_ns: When the script began (`time.perf_counter_ns`).
    """

    def __init__(self, config: ScriptConfig, pauses: PauseState, begin_ns: int) -> None:
        self.steps = 0
        self.pauses = PauseLog(pauses)
        """Pauses in which nothing was recorded."""
        self.monitor: StepMonitor | None = None
        """None if it is off."""
        if config.monitor_limit is not None:
            from perfkit.record.monitor import step_monitor  # needs more of torch than the recording

            self.monitor = step_monitor.StepMonitor(config.monitor_limit, pauses)
            self.monitor.losses.wanted = True
            self.monitor.begin_step(begin_ns)

    def install(self) -> None:
        """Install the hooks in torch: before others, which then run around them."""
        if self.monitor is not None:
            self.monitor.install()

    def open(self, recording: Recording, config: ScriptConfig, local_rank: int, device: torch.device) -> None:
        """Create the step log in the run's folder, and let others read the figures, on one rank of each host."""
        if self.monitor is not None:
            self.monitor.open(recording.folder, recording.rank, recording.world_size, device)
            if local_rank == 0:  # how many samples a step has is unknown
                self.monitor.publish(config.metrics_port, config.otlp, recording.folder, None)

    def end_step(self, kind: StepKind) -> None:
        if self.monitor is not None:
            self.monitor.end_step(self.steps, kind, self.monitor.losses.get())
        self.steps += 1

    @property
    def last_load_ns(self) -> int | None:
        """How long the step that has ended waited for its batch, until the next one begins; None if unknown."""
        if self.monitor is None or not self.monitor.is_on:
            return None
        last = self.monitor.times.take()[DATA]  # on a device the newest record is that of an earlier step
        return None if last == UNKNOWN else last

    def begin_step(self) -> None:
        if self.monitor is not None:
            self.monitor.begin_step()

    def close(self) -> None:
        if self.monitor is not None:
            self.monitor.close()

    def pause(self, phase: PausePhase) -> AbstractContextManager[OpenPause]:
        return self.pauses.pause(phase, self.steps)
