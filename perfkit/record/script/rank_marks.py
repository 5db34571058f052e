"""Marks that a script's ranks leave in the run's folder while they run: who takes part, and which process it is.

A rank that ends without a word (by a signal, in C) shows only in what it leaves behind: other ranks lose their
connection to it. Its mark tells them whose process is gone.
"""

import contextlib
from pathlib import Path
from typing import Final

import msgspec

from perfkit.record.process_stat import ProcessIdentity, is_gone, process_identity

_NAME: Final = ".rank{}.process"


def mark_joined(folder: Path, rank: int, *, pid: int | None = None) -> None:
    """Leave the mark of a rank; without one (a full disk) it counts as one that has not joined."""
    with contextlib.suppress(OSError):
        _path(folder, rank).write_bytes(process_mark(pid))


def process_mark(pid: int | None = None) -> bytes:
    """Return what identifies a process of this host in a file; by default this one."""
    return msgspec.json.encode(process_identity(pid))


def is_of_ended(mark: bytes) -> bool:
    """Return whether a mark is that of a process which ran on this host and has ended; False if that is unknown."""
    try:
        return is_gone(*msgspec.json.decode(mark, type=ProcessIdentity))
    except msgspec.DecodeError:
        return False


def joined_ranks(folder: Path) -> set[int]:
    numbers = (path.name.split(".")[1].removeprefix("rank") for path in folder.glob(_NAME.format("*")))
    return {int(number) for number in numbers if number.isdecimal()}


def joined_processes(folder: Path) -> dict[int, ProcessIdentity]:
    """Return the process of every rank whose mark is there and can be read."""
    processes = {}
    for rank in joined_ranks(folder):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            processes[rank] = msgspec.json.decode(_path(folder, rank).read_bytes(), type=ProcessIdentity)
    return processes


def remove_mark(folder: Path, rank: int) -> None:
    _path(folder, rank).unlink(missing_ok=True)


def ended_ranks(folder: Path, own: int) -> list[int]:
    """Return the ranks beside `own` whose processes ran on this host and have ended, in order."""
    processes = sorted(joined_processes(folder).items())
    return [rank for rank, process in processes if rank != own and is_gone(*process)]


def _path(folder: Path, rank: int) -> Path:
    return folder / _NAME.format(rank)
