"""Marks that a script's ranks leave in the run's folder while they run: who takes part, and which process it is.

A rank that ends without a word (by a signal, in C) shows only in what it leaves behind: other ranks lose their
connection to it. Its mark tells them whose process is gone.
"""

import contextlib
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from perfkit.record.hangs.processes import is_gone, note_start, start_of
from perfkit.record.lifecycle.watchdog import process_identity

_NAME: Final = ".rank{}.process"


class _Process(Struct, frozen=True):
    place: str
    """Host and pid namespace; empty if unknown."""
    pid: int
    started: str = ""
    """When the process started, in ticks since the system's start; empty if unknown. The pid may be another's later."""


def mark_joined(folder: Path, rank: int, *, pid: int | None = None) -> None:
    """Leave the mark of a rank; without one (a full disk) it counts as one that has not joined."""
    with contextlib.suppress(OSError):
        _path(folder, rank).write_bytes(process_mark(pid))


def process_mark(pid: int | None = None) -> bytes:
    """Return what identifies a process of this host in a file; by default this one."""
    place, own = process_identity()
    return msgspec.json.encode(_Process(place, pid or own, start_of(pid or own)))


def is_of_ended(mark: bytes) -> bool:
    """Return whether a mark is that of a process which ran on this host and has ended; False if that is unknown."""
    try:
        process = msgspec.json.decode(mark, type=_Process)
    except msgspec.DecodeError:
        return False
    return is_gone(process.place, process.pid, process.started)


def joined_ranks(folder: Path) -> set[int]:
    numbers = (path.name.split(".")[1].removeprefix("rank") for path in folder.glob(_NAME.format("*")))
    return {int(number) for number in numbers if number.isdecimal()}


def joined_processes(folder: Path) -> dict[int, tuple[str, int]]:
    """Return the host (with its pid namespace) and the pid of every rank whose mark is there and can be read.

    Those of this host are from then on known by their start, too.
    """
    own, _ = process_identity()
    processes = {}
    for rank in joined_ranks(folder):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            process = msgspec.json.decode(_path(folder, rank).read_bytes(), type=_Process)
            processes[rank] = (process.place, process.pid)
            if process.started and process.place == own:
                note_start(process.pid, process.started)
    return processes


def remove_mark(folder: Path, rank: int) -> None:
    """Remove the mark of a rank: it takes no part any more."""
    _path(folder, rank).unlink(missing_ok=True)


def remove_marks(folder: Path) -> None:
    for rank in joined_ranks(folder):
        _path(folder, rank).unlink(missing_ok=True)


def ended_ranks(folder: Path, own: int) -> list[int]:
    """Return the ranks beside `own` whose processes ran on this host and have ended, in order."""
    return [rank for rank in sorted(joined_ranks(folder) - {own}) if _has_ended(folder, rank)]


def _has_ended(folder: Path, rank: int) -> bool:
    try:
        return is_of_ended(_path(folder, rank).read_bytes())
    except OSError:
        return False


def _path(folder: Path, rank: int) -> Path:
    return folder / _NAME.format(rank)
