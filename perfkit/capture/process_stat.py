"""What the operating system shows of a process: its state, its parent, and when it started."""

from pathlib import Path
from typing import Final

STATE: Final = 0
PARENT: Final = 1
START: Final = 19
"""Places among the fields. The start is in ticks since the system's: with it, a pid is not reused some day."""


def stat_fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the state on.

    The name before it may contain anything, also the half of a character: Linux cuts it to 15 bytes.

    Raises:
        OSError: The process has ended, or there is no /proc.
    """
    return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
