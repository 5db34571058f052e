"""Whether the launcher of a host's ranks ended before they did: then it, and not a rank, is what was killed."""

import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_GONE: Final = "was killed, or ended without an error message"
_ALONE: Final = f"{_GONE} (see the system log: out of memory?)"
_TOGETHER: Final = f"{_GONE}, and so did its launcher: which was first is not known"
_AFTER: Final = (
    "was ended after its launcher, which ended first: was that killed, was its terminal closed, or did a rank on "
    "another host end?"
)
_SOON_S: Final = 10.0
"""How long after their launcher ranks end because of it: most launchers kill them at once, some let them go on."""
_LAUNCHERS: Final = frozenset({"mpiexec", "mpiexec.hydra", "mpirun", "orterun", "prterun", "torchrun"})
"""Names of processes that start ranks on their own host, and that end them when they are ended themselves."""


class LauncherEnd:
    """The launchers among the ancestors of a watchdog, which is the child of a rank."""

    def __init__(self) -> None:
        self.descriptors = _open_launchers()
        """Their pidfds."""
        self._together = False
        self._ended_at: float | None = None

    def note(self, ready: Sequence[int], ranks: Sequence[int]) -> None:
        """Note what has ended at once: `ready`, the pidfds of processes, of which `ranks` are those of ranks."""
        if self._ended_at is None and not self.descriptors.isdisjoint(ready):
            self._ended_at = time.monotonic()
            self._together = not set(ranks).isdisjoint(ready)

    def message(self) -> str:
        """Return how the first rank ended that ends without having recorded why."""
        if self._ended_at is None or time.monotonic() - self._ended_at > _SOON_S:
            return _ALONE
        return _TOGETHER if self._together else _AFTER


def _open_launchers() -> set[int]:
    found = set[int]()
    pid = os.getppid()
    with contextlib.suppress(OSError, ValueError):  # no /proc, or a process that is hidden or has ended
        while pid > 1:
            before, _, after = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")
            if before.partition("(")[2] in _LAUNCHERS:
                found.add(os.pidfd_open(pid))
            pid = int(after.split()[1])
    return found
