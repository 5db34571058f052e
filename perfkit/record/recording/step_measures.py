"""What the manifest has of a rank's steps: kind, duration, the wait for the batch, and loss.

Step times are those of the host's clock, or of the device's own if the host runs ahead of the device. The loss of each
step is kept without keeping a tensor: one that lives until the end of the run pins the memory around it. glibc cannot
give a heap back, nor reuse the gap below a small block that stays, so a run on a CPU would grow by megabytes per step.
On a device, reading a loss would make the host wait for the step: it is copied into a buffer there, and read when the
device is waited for anyway.
"""

import itertools
import math
import time
from statistics import median
from typing import Any, Final

import torch
from torch import Tensor

from perfkit.errors import UsageError
from perfkit.record.recording.manifest_writer import StepMeasurements
from perfkit.record.recording.pause_log import PauseLog
from perfkit.records.manifest import StepKind

_CAPACITY: Final = 1024
"""Losses in one buffer on a device. A full one is kept and another added, since reading it would wait."""


class LossBuffer:
    """Losses on the device where they are computed, in few tensors however many they are."""

    def __init__(self) -> None:
        self._chunks: list[Tensor] = []
        self._count = 0

    def append(self, loss: Tensor) -> None:
        chunk, index = divmod(self._count, _CAPACITY)
        if chunk == len(self._chunks):
            dtype = torch.promote_types(loss.dtype, torch.float32)
            self._chunks.append(torch.empty(_CAPACITY, dtype=dtype, device=loss.device))
        self._chunks[chunk][index].copy_(loss.detach().reshape(()))
        self._count += 1

    def take(self) -> list[float]:
        """Return all losses in order, and forget them; waits for the device."""
        losses = [loss for chunk in self._chunks for loss in chunk.tolist()][: self._count]
        del self._chunks[1:]
        self._count = 0
        return losses


class LossLog:
    """Collects the losses of the steps of one rank."""

    def __init__(self) -> None:
        self._values: list[float | None] = []
        self._buffer = LossBuffer()
        self._unread: list[int] = []
        """Steps whose losses are in the buffer, in order."""
        self._passed: list[float | None] = []
        """The loss of the last step, if that is not kept."""

    def add(self, loss: Tensor | float | None, *, kept: bool = True) -> None:
        """Append the loss of the next step; never waits for a device.

        Args:
            loss: The loss; None if there is none.
            kept: Whether it is kept, and not only until the next step. None is after one that is not.

        Raises:
            UsageError: It is a tensor of several elements, or of none.
        """
        values = self._values if kept else self._passed
        if not kept:
            values.clear()
        if not isinstance(loss, Tensor):
            values.append(_finite(loss))
            return
        if loss.numel() != 1:
            shape = ", ".join(map(str, loss.shape))
            raise UsageError(f"step(loss): a tensor of shape ({shape}) is not one loss: pass its mean, or nothing")
        if loss.device.type == "cpu":
            values.append(_finite(float(loss.detach())))
            return
        if kept:
            self._buffer.append(loss)
            self._unread.append(len(values))
        values.append(None)

    def read(self) -> None:
        """Read the losses that are on a device, which waits for it."""
        for step, loss in zip(self._unread, self._buffer.take(), strict=True):
            self._values[step] = _finite(loss)
        self._unread.clear()

    def last(self) -> float | None:
        """Return the loss of the last step; None if there is none, it is not finite, or it is unread."""
        values = self._passed or self._values
        return values[-1] if values else None

    def values(self, count: int) -> list[float | None]:
        """Return the losses of the first `count` steps; None if there is none, it is not finite, or it is unread."""
        return self._values[:count]


def _finite(loss: float | None) -> float | None:
    return float(loss) if loss is not None and math.isfinite(loss) else None


_MOST_EVENTS: Final = 256
"""Steps whose events are kept before those that the device has finished are read. The host is rarely as far ahead."""


class HostClock:
    """Times steps on the CPU, where the host does the work itself; a second call of `begin` moves the beginning."""

    def __init__(self) -> None:
        self._begin_ns = 0
        self._wall_ns: list[int] = []

    def begin(self) -> None:
        self._begin_ns = time.perf_counter_ns()

    def end(self, paused_ns: int = 0) -> None:
        self._wall_ns.append(max(0, time.perf_counter_ns() - self._begin_ns - paused_ns))

    def wall_ns(self, wait: bool = True) -> list[int]:  # noqa: ARG002
        return self._wall_ns


class DeviceClock:
    """Times steps on an accelerator with events in its own queue, so that nothing waits for it during the run.

    A step begins once the host has requested the batch and the device has finished the step before: the same definition
    as for a step in a trace (metrics.md section 3).
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._module: Any = torch.get_device_module(device.type)
        self._begin: Any = None
        self._steps: list[tuple[Any, Any, int]] = []
        """Events of the steps whose duration has not been read, and how long training paused in them."""
        self._wall_ns: list[int] = []

    def begin(self) -> None:
        self._begin = self._mark()

    def end(self, paused_ns: int = 0) -> None:
        """Mark the end of the step.

        A pause ends with the device waiting for the host, as a rule. What it still did for the step in the meantime is
        then taken off, too: the step is too short by as much as the device was behind when the pause began.
        """
        self._steps.append((self._begin, self._mark(), paused_ns))
        if len(self._steps) >= _MOST_EVENTS:  # otherwise a run of a million steps would keep as many
            self._read(wait=False)

    def wall_ns(self, wait: bool = True) -> list[int]:
        """Return the durations of all steps; without `wait`, of those the device has finished: it may never finish."""
        if wait:
            self._module.synchronize(self._device)
        self._read(wait)
        return self._wall_ns

    def _read(self, wait: bool) -> None:
        """Read the durations of the steps that the device has finished; of all of them after a `wait`."""
        ended = list(itertools.takewhile(lambda step: wait or _reached(step[1]), self._steps))
        self._wall_ns += [max(0, round(begin.elapsed_time(end) * 1e6) - paused_ns) for begin, end, paused_ns in ended]
        del self._steps[: len(ended)]

    def _mark(self) -> Any:
        event = self._module.Event(enable_timing=True)
        event.record(self._module.current_stream(self._device))
        return event


def _reached(event: Any) -> bool:
    try:
        return bool(event.query())
    except RuntimeError:  # the device is lost
        return False


def step_clock(device: torch.device) -> HostClock | DeviceClock:
    return HostClock() if device.type == "cpu" else DeviceClock(device)


class StepMeasures:
    """Measures the steps of one rank.

    Args:
        most: How many steps, the first ones, are measured for the manifest; None is all.
    """

    def __init__(self, device: torch.device, most: int | None) -> None:
        self.ended = 0
        """How many steps have ended, also those that are not measured."""
        self.most = most
        self.kinds: list[StepKind] = []
        self._clock = step_clock(device)
        self._losses = LossLog()
        self._load_ns: list[int] = []
        self._paused_ns = 0
        self._waited_ns = self._loaded_ns = 0
        """For input in this step, and of that for its batches."""
        self.last_wait_ns = 0
        """How long the last completed step waited for its batch."""

    @property
    def is_measuring(self) -> bool:
        return self.most is None or self.ended < self.most

    def begin(self, paused_ns: int) -> None:
        """Begin a step, when training has paused for so long in all; a second call moves its beginning."""
        if self.is_measuring:
            self._clock.begin()
        self._paused_ns = paused_ns

    def end(self, paused_ns: int) -> None:
        """Stop the clock: the step has ended, when training has paused for so long in all."""
        if self.is_measuring:
            self._clock.end(paused_ns - self._paused_ns)

    def waited(self, waited_ns: int, loaded_ns: int) -> None:
        """Add to the wait for input in this step, and to what of that was the wait for its batches."""
        self._waited_ns += waited_ns
        self._loaded_ns += loaded_ns

    def add(self, kind: StepKind, loss: Tensor | float | None) -> None:
        """Keep what else there is of the step whose clock has been stopped."""
        measured = self.is_measuring
        if measured:
            self.kinds.append(kind)
            self._load_ns.append(self._loaded_ns)
        self.last_wait_ns, self._waited_ns, self._loaded_ns = self._waited_ns, 0, 0
        self.ended += 1
        self._losses.add(loss, kept=measured)

    def read_losses(self) -> None:
        """Read the losses that are on a device, which waits for it."""
        self._losses.read()

    def last_loss(self) -> float | None:
        """Return the loss of the last step; None if there is none, or if reading it would wait for the device."""
        return self._losses.last()

    def typical_ns(self, first: int) -> float | None:
        """Return the median time (ns) of the steps from `first` on, without waiting for the device; None if unknown.

        Of steps without the profiler, if there are any.
        """
        wall_ns = self._clock.wall_ns(wait=False)
        known = list(zip(self.kinds[first:], wall_ns[first:], strict=False))
        plain = [ns for kind, ns in known if kind == "plain"]
        return median(plain or [ns for _, ns in known]) if known else None

    def measured(self, wait: bool, writing_ns: int, trace_bytes: int, pauses: PauseLog) -> StepMeasurements:
        """Return what was measured: see `Recording.measurements`."""
        wall_ns = self._clock.wall_ns(wait)
        if wait:
            self._losses.read()
        count = len(wall_ns)
        return StepMeasurements(
            kinds=self.kinds[:count],
            wall_ns=wall_ns,
            load_ns=self._load_ns[:count],
            loss=self._losses.values(count),
            writing_ns=writing_ns,
            trace_bytes=trace_bytes,
            pauses=pauses.all(),
            earlier_pauses=pauses.earlier(),
            omitted=self.ended - len(self.kinds),
        )
