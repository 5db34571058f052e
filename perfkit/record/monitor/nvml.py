"""What NVIDIA's management library shows of a device: use, temperature, clock, power, and why its clocks are low.

The package `nvidia-ml-py` (extra `nvml`) is imported only if the run uses a CUDA device. The library does not use CUDA
and waits for no kernel. Constants are those of nvml.h.
"""

from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from math import nan
from typing import Any, Final

import torch

from perfkit.records.monitor import UNKNOWN

_TEMPERATURE_GPU: Final = 0
_CLOCK_SM: Final = 1

THROTTLING: Final = 0x04 | 0x08 | 0x20 | 0x40 | 0x80
"""Throttle reasons that slow a busy device: power cap, slowdown by hardware, heat (by driver or hardware), and a brake
of the power supply. Idle clocks, and those that an administrator has set, are not among them."""


class NvmlDevice:
    """One device."""

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
