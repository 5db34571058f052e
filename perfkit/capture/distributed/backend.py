"""The backend of the default process group."""

import torch.distributed as dist

from perfkit.accelerators import backend_on


def backend_of(device_type: str) -> str | None:
    """Return the backend of the default process group for a type of device; None without a process group.

    A group that was created without naming a backend (by a device mesh, for example) has one per type of device, and
    torch names it "undefined".
    """
    if not (dist.is_available() and dist.is_initialized()):
        return None
    name: str = dist.get_backend()
    return backend_on(dist.get_backend_config() if name == "undefined" else name, device_type)
