"""Which device this process uses, where no model determines it."""

import torch

from perfkit.accelerators import device_types


def device_in_use() -> torch.device:
    """Return the accelerator that this process has begun to use, else the CPU.

    It asks only what is initialised: to ask what is available can initialise a driver, which then fails in a fork.
    """
    for kind in device_types():
        module = getattr(torch, kind, None)
        if module is not None and module.is_initialized():
            return torch.device(kind, module.current_device())
    return torch.device("cpu")
