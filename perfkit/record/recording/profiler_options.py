"""What torch's profiler is asked to record."""

from typing import TYPE_CHECKING

import torch
from msgspec import Struct
from torch.profiler import ProfilerActivity

from perfkit.accelerators import accelerators
from perfkit.record.messages import print_warning

if TYPE_CHECKING:
    from torch._C._profiler import _ExperimentalConfig


class ProfilerOptions(Struct, frozen=True, kw_only=True):
    """What torch.profiler records besides operators."""

    record_shapes: bool = False
    profile_memory: bool = False
    """Record allocations, for memory over the step."""
    with_stack: bool = False
    with_flops: bool = False
    with_modules: bool = False


def activities(device: str) -> list[ProfilerActivity]:
    """Return what to record on a type of device; the host alone if this torch cannot record the device."""
    if device == "cpu":
        return [ProfilerActivity.CPU]
    row = next((row for row in accelerators() if row.device == device), None)
    own = getattr(ProfilerActivity, row.activity, None) if row else None
    if own is None:
        print_warning(f"torch {torch.__version__} cannot record {device} devices: the traces have the host only")
        return [ProfilerActivity.CPU]
    return [ProfilerActivity.CPU, own]


def every_thread() -> "_ExperimentalConfig | None":
    """Return the setting with which all threads are recorded, and any may stop it; None if this torch has none."""
    try:
        from torch._C._profiler import _ExperimentalConfig  # not public, and needed by few programs

        return _ExperimentalConfig(profile_all_threads=True)
    except (ImportError, TypeError):
        return None
