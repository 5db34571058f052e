"""What the operating system shows of a process, also of ranks that do not write what they do.

Which one it is, its state, its parent, and when it started; whether it has ended, is stopped, or runs all the same.
"""

import contextlib
import os
import signal
import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple

STATE: Final = 0
PARENT: Final = 1
START: Final = 19
"""Indices of the fields. The start is in ticks since the system's: with it, a pid is not reused some day."""
_FLAGS: Final = 6
_EXITING: Final = 0x4
"""`PF_EXITING` of Linux: set before the files and connections of a process are closed."""


class ProcessIdentity(NamedTuple):
    """Which process it is, also for other hosts."""

    host: str
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
            host = f"{socket.gethostname()} {boot_id()} {os.readlink('/proc/self/ns/pid')}"
            return ProcessIdentity(host, pid, start_of(pid))
    except OSError:  # no /proc
        pass
    return ProcessIdentity("", 0, "")


def boot_id() -> str:
    """Return what is the same for all containers of a machine until it starts again; empty if unknown."""
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


def is_gone(host: str, pid: int, started: str) -> bool:
    """Return whether a process (see `ProcessIdentity`) ran on this host and has ended; False if that is unknown.

    One that its parent has not waited for yet has ended, and so has one that is about to: others see its connections
    end before it is a zombie.
    """
    if not host or host != process_identity().host:
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


ENDED: Final = "was killed, or ended without a message"
STOPPED: Final = "is stopped (SIGSTOP, or a debugger)"
SILENT: Final = (
    "runs, but did not write what it does (a call that does not return may hold Python's lock), so that it is not "
    "known what it has issued"
)
_STOPPED_STATES: Final = ("T", "t")

Processes = Mapping[int, ProcessIdentity]
"""By rank."""


def absent_ranks(processes: Processes) -> dict[int, str]:
    """Return the ranks of this host that have ended or are stopped, and which of it."""
    found = {rank: _state(process) for rank, process in _of_this_host(processes).items()}
    return {rank: text for rank, text in found.items() if text is not None}


def silent_ranks(processes: Processes) -> dict[int, str]:
    """Return every rank of this host, with the reason if it has written nothing."""
    return dict.fromkeys(_of_this_host(processes), SILENT) | absent_ranks(processes)


def kill_ranks(processes: Processes, ranks: Collection[int]) -> None:
    """Kill ranks of this host that cannot end themselves: a launcher may wait for them for ever."""
    for rank, process in _of_this_host(processes).items():
        if rank in ranks and process.pid != os.getpid() and not is_gone(*process):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)


def _of_this_host(processes: Processes) -> dict[int, ProcessIdentity]:
    own = process_identity().host
    return {rank: process for rank, process in processes.items() if own and process.host == own}


def _state(process: ProcessIdentity) -> str | None:
    if is_gone(*process):
        return ENDED
    with contextlib.suppress(OSError):
        return STOPPED if stat_fields(process.pid)[STATE] in _STOPPED_STATES else None
    return None
