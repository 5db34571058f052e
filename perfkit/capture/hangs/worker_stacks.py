"""Stacks of the processes that a rank has forked, such as loader workers: each leaves its own when it is asked to.

A forked child does not inherit its parent's threads; one of its own waits for the request. Loader workers may be forked
before the run has a folder: its path is put where parent and children see it. A worker that was started with `spawn` is
not asked.
"""

import contextlib
import mmap
import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from perfkit.schema.hang.rank_state import Frame, WorkerStack
from perfkit.util.atomic_write import atomic_write

REQUEST_NAME: Final = ".hang{}"
"""Empty file in the run's folder that asks all processes to write what they do, by number of the request."""
_NAME: Final = ".rank{}.worker{}"
_POLL_S: Final = 0.5
_WAIT_S: Final = 4.0
_MOST_REQUESTS: Final = 100

_BYTES: Final = 8192
"""For a path, which has at most 4096 bytes on Linux."""


class _Place(Struct, frozen=True):
    folder: str
    rank: int


class _Shared(NamedTuple):
    owner: int
    """Pid of the process whose children share it."""
    memory: mmap.mmap


_shared: list[_Shared] = []
"""Memory with a `_Place` that forked children share; empty before `follow_forks`."""


def follow_forks() -> None:
    """Let the processes that this one forks from now on leave their stacks when they are asked to."""
    if not _shared and hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=_watch_in_child)
        _shared.append(_Shared(os.getpid(), mmap.mmap(-1, _BYTES)))


def set_place(folder: Path, rank: int) -> None:
    """Tell the forked processes where they are asked, and leave their stacks."""
    if _shared and _shared[0].owner != os.getpid():  # a forked process that is a rank itself
        _shared[:] = [_Shared(os.getpid(), mmap.mmap(-1, _BYTES))]
    text = msgspec.json.encode(_Place(str(folder), rank))
    if _shared and len(text) < _BYTES:
        _shared[0].memory[:] = text.ljust(_BYTES, b"\0")


def _read_place() -> _Place | None:
    text = _shared[0].memory[:].rstrip(b"\0") if _shared else b""
    with contextlib.suppress(msgspec.DecodeError):  # it is being written
        return msgspec.json.decode(text, type=_Place) if text else None
    return None


def worker_stacks(folder: Path, rank: int) -> list[WorkerStack]:
    """Wait for the stacks of this process's children, and return those that came."""
    pids = [child.pid for child in multiprocessing.active_children() if child.pid is not None]
    paths = [folder / _NAME.format(rank, pid) for pid in pids]
    deadline = time.monotonic() + _WAIT_S
    while not all(path.exists() for path in paths) and time.monotonic() < deadline:
        time.sleep(_POLL_S / 5)
    stacks = []
    for pid, path in zip(pids, paths, strict=True):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            stacks.append(WorkerStack(pid=pid, frames=msgspec.json.decode(path.read_bytes(), type=list[Frame])))
            path.unlink()
    return stacks


def _watch_in_child() -> None:
    threading.Thread(target=_answer_requests, name="perfkit-worker", daemon=True).start()


def _answer_requests() -> None:
    time.sleep(_POLL_S)
    if multiprocessing.parent_process() is None:
        return  # forked by other means: nobody asks it
    while (place := _read_place()) is None:
        time.sleep(_POLL_S)
    if _shared[0].owner == os.getpid():
        return  # this process has become a rank, which answers for itself
    folder, rank = Path(place.folder), place.rank
    for number in range(_MOST_REQUESTS):
        request = folder / REQUEST_NAME.format(number)
        while not request.exists():
            if not folder.exists():
                return
            time.sleep(_POLL_S)
        with contextlib.suppress(Exception):  # it belongs to the program: nothing of perfkit's may be seen there
            _leave_stack(folder, rank)


def _leave_stack(folder: Path, rank: int) -> None:
    from perfkit.capture.hangs.rank_state import frames_of

    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    with atomic_write(folder / _NAME.format(rank, os.getpid())) as stream:
        stream.write(msgspec.json.encode(frames_of(frame)))
