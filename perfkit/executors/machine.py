"""What of this machine may be used: cores and memory, as the operating system, its batch system or container allow."""

import os
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup")
_MEMINFO: Final = Path("/proc/meminfo")


def count_cores() -> int:
    """Return how many cores this process may use (its affinity, and the quota of its container)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = (_read(_CGROUP / "cpu.max") or "max").split()
    if len(quota) == 2 and quota[0] != "max":
        allowed = min(allowed, -(-int(quota[0]) // int(quota[1])))
    return max(allowed, 1)


def free_bytes() -> int | None:
    """Return how much memory is free for this process; None where the system does not say."""
    lines = (_read(_MEMINFO) or "").splitlines()
    limits = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    most, used = _read(_CGROUP / "memory.max"), _read(_CGROUP / "memory.current")
    if most and used and most != "max":
        limits.append(max(int(most) - int(used), 0))
    return min(limits, default=None)


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
