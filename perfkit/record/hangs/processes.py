"""What the operating system shows of ranks that do not write what they do: ended, stopped, or running all the same."""

import contextlib
import os
import signal
from collections.abc import Collection, Mapping
from typing import Final

from perfkit.record.lifecycle.watchdog import process_identity
from perfkit.record.process_stat import START, STATE, has_ended, stat_fields

ENDED: Final = "was killed, or ended without a message"
STOPPED: Final = "is stopped (SIGSTOP, or a debugger)"
SILENT: Final = (
    "runs, but did not write what it does (a call that does not return may hold Python's lock), so that it is not "
    "known what it has issued"
)
_STOPPED_STATES: Final = ("T", "t")

Places = Mapping[int, tuple[str, int]]
"""By rank: host and pid namespace, and pid there, as `process_identity` returns them."""

_started: Final[dict[int, str]] = {}
"""When processes of this host started, by pid: a pid may be another process's by the time of a hang."""


def start_of(pid: int) -> str:
    """Return when a process of this host started, in ticks since the system's start; empty if unknown."""
    fields = _fields(pid)
    return fields[START] if fields else ""


def is_gone(place: str, pid: int, started: str) -> bool:
    """Return whether a process ran on this host and has ended; False if that is unknown.

    One that its parent has not waited for yet has ended.

    Args:
        place: Its host and pid namespace, as `process_identity` returns them; empty if unknown.
        started: What `start_of` returned for it: the pid may be another's by now. Empty if unknown.
    """
    own, _ = process_identity()
    if not own or place != own:
        return False
    try:
        os.kill(pid, 0)
        fields = stat_fields(pid)
        return has_ended(fields) or started not in ("", fields[START])
    except (ProcessLookupError, FileNotFoundError):
        return True
    except (OSError, IndexError, OverflowError):  # another user's, or no /proc; a pid from a damaged file
        return False


def note_starts(places: Places) -> None:
    """Note when the ranks of this host started, while they are known to run."""
    own, _ = process_identity()
    for place, pid in places.values():
        fields = _fields(pid) if own and place == own else []
        if fields:
            note_start(pid, fields[START])


def note_start(pid: int, started: str) -> None:
    """Note when a rank of this host started, in ticks since the system's start."""
    _started[pid] = started


def absent_ranks(places: Places) -> dict[int, str]:
    """Return the ranks of this host that have ended or are stopped, and which of it."""
    own, _ = process_identity()
    found = {rank: _state(pid) for rank, (place, pid) in places.items() if own and place == own}
    return {rank: text for rank, text in found.items() if text is not None}


def silent_ranks(places: Places) -> dict[int, str]:
    """Return every rank of this host, with the reason if it has written nothing."""
    own, _ = process_identity()
    return {rank: SILENT for rank, (place, _) in places.items() if own and place == own} | absent_ranks(places)


def kill_ranks(places: Places, ranks: Collection[int]) -> None:
    """Kill ranks of this host that cannot end themselves: a launcher may wait for them for ever."""
    own, _ = process_identity()
    for rank in ranks:
        place, pid = places.get(rank, ("", 0))
        if own and place == own and pid not in (0, os.getpid()) and not _is_another(pid):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _state(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ENDED
    except OSError:  # another user's
        return None
    fields = _fields(pid)
    if _is_another(pid) or (fields and has_ended(fields)):
        return ENDED
    return STOPPED if fields and fields[STATE] in _STOPPED_STATES else None


def _is_another(pid: int) -> bool:
    """Return whether a pid has become that of a process that is not the rank."""
    fields = _fields(pid)
    return bool(fields) and _started.get(pid, fields[START]) != fields[START]


def _fields(pid: int) -> list[str]:
    """Return what /proc shows of a process, from its state on; nothing if it has ended, or without /proc."""
    try:
        fields = stat_fields(pid)
    except OSError:
        return []
    return fields if len(fields) > START else []
