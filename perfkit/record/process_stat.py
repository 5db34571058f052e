"""What the operating system shows of a process: which one it is, its state, its parent, and when it started."""

import os
import socket
from pathlib import Path
from typing import Final, NamedTuple

STATE: Final = 0
PARENT: Final = 1
START: Final = 19
"""Places among the fields. The start is in ticks since the system's: with it, a pid is not reused some day."""
_FLAGS: Final = 6
_EXITING: Final = 0x4
"""`PF_EXITING` of Linux: set before the files and connections of a process are closed."""


class ProcessIdentity(NamedTuple):
    """Which process it is, also for other hosts."""

    place: str
    """Host and pid namespace; empty if the process cannot be watched."""
    pid: int
    started: str
    """In ticks since the system's start; empty if unknown. The pid may be another process's later."""


def process_identity(pid: int | None = None) -> ProcessIdentity:
    """Return the identity of a process of this host, by default that of this one.

    Hosts of one name have different boot ids, as has a host that was restarted: of what ran before on it, it is then
    not known how it ended.
    """
    pid = pid or os.getpid()
    try:
        if hasattr(os, "pidfd_open"):
            place = f"{socket.gethostname()} {_boot_id()} {os.readlink('/proc/self/ns/pid')}"
            return ProcessIdentity(place, pid, start_of(pid))
    except OSError:  # no /proc
        pass
    return ProcessIdentity("", 0, "")


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:  # hidden in some containers
        return ""


def start_of(pid: int) -> str:
    try:
        return stat_fields(pid)[START]
    except (OSError, IndexError):
        return ""


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on.

    The name before it may contain anything, also the half of a character: Linux cuts it to 15 bytes.

    Raises:
        OSError: The process has ended, or there is no /proc.
    """
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def is_gone(place: str, pid: int, started: str) -> bool:
    """Return whether a process (see `ProcessIdentity`) ran on this host and has ended; False if that is unknown.

    One that its parent has not waited for yet has ended, and so has one that is about to: others see its connections
    end before it is a zombie.
    """
    if not place or place != process_identity().place:
        return False
    try:
        os.kill(pid, 0)
        fields = stat_fields(pid)
        ended = fields[STATE] in ("Z", "X") or bool(int(fields[_FLAGS]) & _EXITING)
        return ended or started not in ("", fields[START])
    except (ProcessLookupError, FileNotFoundError):
        return True
    except (OSError, IndexError, OverflowError):  # another user's, or no /proc; a pid from a damaged file
        return False
