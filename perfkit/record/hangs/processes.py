"""What the operating system shows of ranks that do not write what they do: ended, stopped, or running all the same."""

import contextlib
import os
import signal
from collections.abc import Collection, Mapping
from typing import Final

from perfkit.record.process_stat import STATE, ProcessIdentity, is_gone, process_identity, stat_fields

ENDED: Final = "was killed, or ended without a message"
STOPPED: Final = "is stopped (SIGSTOP, or a debugger)"
SILENT: Final = (
    "runs, but did not write what it does (a call that does not return may hold Python's lock), so that it is not "
    "known what it has issued"
)
_STOPPED_STATES: Final = ("T", "t")

Places = Mapping[int, ProcessIdentity]
"""By rank."""


def absent_ranks(places: Places) -> dict[int, str]:
    """Return the ranks of this host that have ended or are stopped, and which of it."""
    found = {rank: _state(process) for rank, process in _of_this_host(places).items()}
    return {rank: text for rank, text in found.items() if text is not None}


def silent_ranks(places: Places) -> dict[int, str]:
    """Return every rank of this host, with the reason if it has written nothing."""
    return dict.fromkeys(_of_this_host(places), SILENT) | absent_ranks(places)


def kill_ranks(places: Places, ranks: Collection[int]) -> None:
    """Kill ranks of this host that cannot end themselves: a launcher may wait for them for ever."""
    for rank, process in _of_this_host(places).items():
        if rank in ranks and process.pid != os.getpid() and not is_gone(*process):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(process.pid, signal.SIGKILL)


def _of_this_host(places: Places) -> dict[int, ProcessIdentity]:
    own = process_identity().place
    return {rank: process for rank, process in places.items() if own and process.place == own}


def _state(process: ProcessIdentity) -> str | None:
    if is_gone(*process):
        return ENDED
    with contextlib.suppress(OSError):
        return STOPPED if stat_fields(process.pid)[STATE] in _STOPPED_STATES else None
    return None
