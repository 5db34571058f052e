"""What the operating system shows of a process: its state, its parent, and when it started."""

from pathlib import Path
from typing import Final

STATE: Final = 0
PARENT: Final = 1
START: Final = 19
"""Places among the fields. The start is in ticks since the system's: with it, a pid is not reused some day."""
_FLAGS: Final = 6
_EXITING: Final = 0x4
"""`PF_EXITING` of Linux: set before the files and connections of a process are closed."""


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on.

    The name before it may contain anything, also the half of a character: Linux cuts it to 15 bytes.

    Raises:
        OSError: The process has ended, or there is no /proc.
    """
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()


def has_ended(fields: list[str]) -> bool:
    """Return whether a process has ended, or is about to: others see its connections end before it is a zombie.

    Args:
        fields: What `stat_fields` returns for it.
    """
    return fields[STATE] in ("Z", "X") or bool(int(fields[_FLAGS]) & _EXITING)
