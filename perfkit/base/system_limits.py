"""Usable cores and memory of this machine, within the limits of its batch system or container."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_CGROUP: Final = Path("/sys/fs/cgroup")
_MY_GROUPS: Final = Path("/proc/self/cgroup")
_MEMINFO: Final = Path("/proc/meminfo")
_UNLIMITED: Final = 2**60
"""cgroups v1 writes a number of this order for no limit."""


def count_cores() -> int:
    """Return the number of cores this process may use (its affinity, and the quota of its container)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in _groups("cpu"):
        quota, period = _cpu_quota(group)
        if quota > 0 and period > 0:
            allowed = min(allowed, -(-quota // period))
    return max(allowed, 1)


def free_bytes() -> int | None:
    """Return the free memory for this process; None if unknown."""
    lines = (_read(_MEMINFO) or "").splitlines()
    limits = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    for group in _groups("memory"):
        most = _number(group / "memory.max") or _number(group / "memory.limit_in_bytes")
        used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes")
        if most and used and most < _UNLIMITED:
            limits.append(max(most - used + _reclaimable(group), 0))
    return min(limits, default=None)


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of this process's control group and its ancestors: each may set a limit."""
    for line in (_read(_MY_GROUPS) or "0::/").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = _CGROUP / controller if controllers else _CGROUP
        group = root / path.strip("/")
        # In a container the group's path may not exist under its mount: then only the root is used.
        yield from (folder for folder in (group, *group.parents) if folder.is_relative_to(root) and folder.is_dir())


def _cpu_quota(group: Path) -> tuple[int, int]:
    """Return the CPU quota and its period in microseconds; (0, 0) for no limit."""
    fields = (_read(group / "cpu.max") or "").split()
    if len(fields) == 2:
        return (int(fields[0]), int(fields[1])) if fields[0] != "max" else (0, 0)
    return _number(group / "cpu.cfs_quota_us") or 0, _number(group / "cpu.cfs_period_us") or 0


def _reclaimable(group: Path) -> int:
    """Return the bytes of inactive page cache: they count as used, but are reclaimed on demand."""
    fields = dict(line.split() for line in (_read(group / "memory.stat") or "").splitlines())
    return int(fields.get("total_inactive_file", fields.get("inactive_file", 0)))


def _number(path: Path) -> int | None:
    try:
        return int(_read(path) or "")
    except ValueError:
        return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
