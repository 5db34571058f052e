"""Step times: by the host's clock, or by the device's own if the host runs ahead of the device."""

import itertools
import time
from typing import Any, Final

import torch

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
