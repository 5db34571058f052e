"""Which activities torch's profiler records on a type of device."""

import torch
from torch.profiler import ProfilerActivity

from perfkit.accelerators import accelerators
from perfkit.capture.messages import print_warning


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
