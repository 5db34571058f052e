"""Samples of the host and the device, taken once per second in a thread: they cost too much to be taken per step."""

import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from math import nan
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from perfkit.record.processor_time import processor_times
from perfkit.records.monitor import THROTTLED, UNKNOWN

_TEMPERATURE_GPU: Final = 0
_CLOCK_SM: Final = 1
"""As in nvml.h, like the next ones."""

THROTTLING: Final = 0x04 | 0x08 | 0x20 | 0x40 | 0x80
"""Throttle reasons that slow a busy device: power cap, slowdown by hardware, heat (by driver or hardware), and a brake
of the power supply. Idle clocks, and those that an administrator has set, are not among them."""


class NvmlDevice:
    """What NVIDIA's management library shows of a device; it does not use CUDA, and waits for no kernel."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml = nvml
        self._handle = handle

    def read(self) -> dict[str, Any]:
        """Return what the device shows, by column of the step log; what it does not is unknown."""
        nvml, handle = self._nvml, self._handle
        reasons = self._value(lambda: nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))
        return {
            "throttle_reasons": UNKNOWN if reasons != reasons else int(reasons),
            "device_busy": self._value(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
            "temperature_c": self._value(lambda: nvml.nvmlDeviceGetTemperature(handle, _TEMPERATURE_GPU)),
            "clock_mhz": self._value(lambda: nvml.nvmlDeviceGetClockInfo(handle, _CLOCK_SM)),
            "power_w": self._value(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000),
        }

    def _value(self, read: Callable[[], float]) -> float:
        with suppress(self._nvml.NVMLError):
            return float(read())
        return nan


def open_nvml(device: torch.device) -> NvmlDevice | None:
    """Return the device as NVML knows it; None if it is not NVIDIA's, or the package or the library is missing."""
    if device.type != "cuda" or torch.version.cuda is None:
        return None
    with suppress(ImportError):
        nvml: Any = import_module("pynvml")
        with suppress(nvml.NVMLError, RuntimeError, AttributeError):
            nvml.nvmlInit()
            # Its number there is not the one in this process, which sees only some devices.
            identifier = torch.cuda.get_device_properties(device).uuid
            return NvmlDevice(nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{identifier}"))
    return None


_MAXRSS_UNIT: Final = 1 if sys.platform == "darwin" else 1024


class SampledColumns(NamedTuple):
    """One sample: the last columns of the step log, in their order."""

    allocated_bytes: int = UNKNOWN
    peak_allocated_bytes: int = UNKNOWN
    rss_bytes: int = UNKNOWN
    peak_rss_bytes: int = UNKNOWN
    host_available_bytes: int = UNKNOWN
    throttle_reasons: int = UNKNOWN
    process_busy: float = nan
    host_busy: float = nan
    device_busy: float = nan
    temperature_c: float = nan
    clock_mhz: float = nan
    power_w: float = nan


class Sample(NamedTuple):
    """A sample, as it becomes part of the records of steps."""

    taken_ns: int = 0
    """By `time.perf_counter_ns`; 0 if none was taken."""
    flags: int = 0
    """Those of the step log's records that follow from it."""
    columns: SampledColumns = SampledColumns()


class Sampler:
    """Takes samples of this process, its host and its device."""

    def __init__(self, device: torch.device) -> None:
        self._memory = _device_memory(device)
        self._nvml: NvmlDevice | None = open_nvml(device)
        self._busy_before = processor_times()
        self._process_before = time.process_time_ns(), time.perf_counter_ns()

    def take(self) -> Sample:
        """Take a sample: reads counters of the system, of torch's allocator and of NVML; waits for no device."""
        allocated, peak = self._memory()
        columns = SampledColumns(
            allocated_bytes=allocated,
            peak_allocated_bytes=peak,
            rss_bytes=_read_kib("/proc/self/status", "VmRSS:"),
            peak_rss_bytes=_peak_resident_bytes(),
            host_available_bytes=_read_kib("/proc/meminfo", "MemAvailable:"),
            process_busy=self._process_busy(),
            host_busy=self._host_busy(),
            **({} if self._nvml is None else self._nvml.read()),
        )
        throttled = columns.throttle_reasons > 0 and columns.throttle_reasons & THROTTLING
        return Sample(time.perf_counter_ns(), THROTTLED if throttled else 0, columns)

    def _process_busy(self) -> float:
        before, now = self._process_before, (time.process_time_ns(), time.perf_counter_ns())
        self._process_before = now
        return (now[0] - before[0]) / (now[1] - before[1]) if now[1] > before[1] else nan

    def _host_busy(self) -> float:
        before, now = self._busy_before, processor_times()
        self._busy_before = now
        if before is None or now is None or sum(now) <= sum(before):
            return nan
        return (now.busy_ns - before.busy_ns) / (sum(now) - sum(before))


def _device_memory(device: torch.device) -> Callable[[], tuple[int, int]]:
    """Return what reads how many bytes of a device tensors hold, and the most; unknown on a CPU."""
    module: Any = None if device.type == "cpu" else torch.get_device_module(device.type)
    if not (hasattr(module, "memory_allocated") and hasattr(module, "max_memory_allocated")):
        return lambda: (UNKNOWN, UNKNOWN)
    return lambda: (int(module.memory_allocated(device)), int(module.max_memory_allocated(device)))


def _peak_resident_bytes() -> int:
    known = _read_kib("/proc/self/status", "VmHWM:")
    if known != UNKNOWN:
        return known
    # On Linux this is also the peak of what the process was before `exec`: of the program that has started it.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_UNIT


def _read_kib(path: str, name: str) -> int:
    """Return the bytes that a line of one of the kernel's tables gives in KiB; -1 without such a line."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path(path).read_text().splitlines():
            if line.startswith(name):
                return int(line.split()[1]) * 1024
    return UNKNOWN
