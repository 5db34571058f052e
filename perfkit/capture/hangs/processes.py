"""What the operating system shows of ranks that do not write what they do: ended, stopped, or running all the same."""

import contextlib
import os
import signal
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from perfkit.capture.lifecycle.watchdog import process_identity

ENDED: Final = "was killed, or ended without a message"
STOPPED: Final = "is stopped (SIGSTOP, or a debugger)"
SILENT: Final = (
    "runs, but did not write what it does (a call that does not return may hold Python's lock), so that it is not "
    "known what it has issued"
)
_STATES: Final = {"Z": ENDED, "X": ENDED, "T": STOPPED, "t": STOPPED}

Places = Mapping[int, tuple[str, int]]
"""By rank: host and pid namespace, and pid there, as `process_identity` returns them."""


def absent_ranks(places: Places) -> dict[int, str]:
    """Return the ranks of this host that have ended or are stopped, and which of it."""
    own, _ = process_identity()
    found = {rank: _state(pid) for rank, (place, pid) in places.items() if own and place == own}
    return {rank: text for rank, text in found.items() if text is not None}


def silent_ranks(places: Places) -> dict[int, str]:
    """Return every rank of this host, with what is to be said of it if it has left nothing."""
    own, _ = process_identity()
    return {rank: SILENT for rank, (place, _) in places.items() if own and place == own} | absent_ranks(places)


def kill_ranks(places: Places, ranks: Collection[int]) -> None:
    """Kill ranks of this host that cannot end themselves: a launcher may wait for them for ever."""
    own, _ = process_identity()
    for rank in ranks:
        place, pid = places.get(rank, ("", 0))
        if own and place == own and pid not in (0, os.getpid()):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _state(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
        return _STATES.get(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
    except (ProcessLookupError, FileNotFoundError):
        return ENDED
    except (OSError, IndexError):  # another user's, or no /proc
        return None
