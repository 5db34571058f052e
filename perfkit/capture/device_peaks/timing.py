"""Time a piece of work on a device: the median over repetitions that are long enough for the clock."""

import time
from collections.abc import Callable
from statistics import median
from typing import Final

import torch

_SHORTEST_NS: Final = 2_000_000
"""One repetition calls the work as often as this takes, so that starting it does not count."""
_MOST_CALLS: Final = 10_000


def synchronize(device: torch.device) -> None:
    """Wait until the device has done everything that was launched."""
    if device.type != "cpu":
        torch.get_device_module(device.type).synchronize(device)


def time_once(work: Callable[[], object], device: torch.device, calls: int = 1) -> float:
    """Return the time of one call (ns), as the mean over `calls` in a row."""
    synchronize(device)
    begin = time.perf_counter_ns()
    for _ in range(calls):
        work()
    synchronize(device)
    return (time.perf_counter_ns() - begin) / calls


def median_time(work: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Return the median time of a call (ns) over `repeats` repetitions, after two that do not count."""
    time_once(work, device)
    first_ns = time_once(work, device)
    calls = max(1, min(_MOST_CALLS, round(_SHORTEST_NS / max(first_ns, 1))))
    return median(time_once(work, device, calls) for _ in range(repeats))
