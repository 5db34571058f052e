"""Stacks of the processes that a rank has forked, such as loader workers: each leaves its own when it is asked to.

A forked child does not inherit its parent's threads; it starts one that waits for the request. Loader workers may be
forked before the run has a folder: its path is put where parent and children see it. A worker that was started with
`spawn` is not asked.
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

from perfkit.base.atomic_write import atomic_write
from perfkit.base.polling import SHARED_POLL_S, wait_until
from perfkit.record.own_threads import start_own_thread
from perfkit.records.hang import Frame, WorkerStack

REQUEST_NAME: Final = ".hang{}"
"""Empty file in the run's folder that asks all processes to write what they do, by number of the request."""
_NAME: Final = ".rank{}.worker{}.{}"
"""By rank, pid, and number of the request."""
_MEMORY_POLL_S: Final = 0.5
"""How often a worker looks, in memory, whether the run has a folder."""
_FOLDER_POLL_S: Final = 2.0
"""How often it looks into the folder: a run may have thousands of workers, and one file system."""
_WAIT_S: Final = 8.0
_MOST_REQUESTS: Final = 100

_BYTES: Final = 8192
"""For a path, which has at most 4096 bytes on Linux."""


class _Run(NamedTuple):
    folder: Path
    rank: int


class _Shared(NamedTuple):
    owner: int
    """Pid of the process whose children share it."""
    memory: mmap.mmap


_shared: list[_Shared] = []
"""Memory with a `_Run` that forked children share; empty before `follow_forks`."""


def follow_forks() -> None:
    """Let the processes that this one forks from now on leave their stacks when they are asked to."""
    if not _shared and hasattr(os, "register_at_fork"):
        with contextlib.suppress(OSError):  # no memory left: the workers' stacks are then not known
            _shared.append(_Shared(os.getpid(), mmap.mmap(-1, _BYTES)))
            os.register_at_fork(after_in_child=lambda: start_own_thread("worker", _answer_requests))


def share_run(folder: Path, rank: int) -> None:
    """Tell the forked processes where they are asked, and leave their stacks."""
    if _shared and _shared[0].owner != os.getpid():  # a forked process that is a rank itself
        _shared.clear()
        with contextlib.suppress(OSError):
            _shared.append(_Shared(os.getpid(), mmap.mmap(-1, _BYTES)))
    path = os.fsencode(folder)  # which need not be UTF-8
    text = b"%d %d %s" % (rank, len(path), path)
    if _shared and len(text) < _BYTES:
        _shared[0].memory[:] = text.ljust(_BYTES, b"\0")


def _shared_run() -> _Run | None:
    rank, _, rest = (_shared[0].memory[:] if _shared else b"").rstrip(b"\0").partition(b" ")
    length, _, path = rest.partition(b" ")
    if not path or int(length) != len(path):  # there is none yet, or it is being written
        return None
    return _Run(Path(os.fsdecode(path)), int(rank))


def worker_stacks(folder: Path, rank: int, request: int) -> list[WorkerStack]:
    """Wait for the stacks of this process's children, and return those that came in answer to a request."""
    pids = [child.pid for child in multiprocessing.active_children() if child.pid is not None]
    paths = [folder / _NAME.format(rank, pid, request) for pid in pids]
    wait_until(lambda: all(path.exists() for path in paths), _WAIT_S, SHARED_POLL_S)
    stacks = []
    for pid, path in zip(pids, paths, strict=True):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            stacks.append(WorkerStack(pid=pid, frames=msgspec.json.decode(path.read_bytes(), type=list[Frame])))
            path.unlink()
    return stacks


def remove_requests(folder: Path) -> None:
    """Remove the requests, and what workers left too late: the run has ended."""
    for pattern in (REQUEST_NAME.format("[0-9]*"), _NAME.format("*", "*", "*")):
        for path in folder.glob(pattern):
            path.unlink(missing_ok=True)


def _answer_requests() -> None:
    time.sleep(_MEMORY_POLL_S)
    if multiprocessing.parent_process() is None:
        return  # forked by other means: nobody asks it
    while (run := _shared_run()) is None:
        time.sleep(_MEMORY_POLL_S)
    if _shared[0].owner == os.getpid():
        return  # this process has become a rank, which answers for itself
    for number in range(_MOST_REQUESTS):
        while not os.path.exists(run.folder / REQUEST_NAME.format(number)):
            if not os.path.isdir(run.folder):
                return
            time.sleep(_FOLDER_POLL_S)
        with contextlib.suppress(Exception):  # it belongs to the program: nothing of perfkit's may be seen there
            _leave_stack(run, number)


def _leave_stack(run: _Run, request: int) -> None:
    from perfkit.record.hangs.rank_state import frames_of

    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    with atomic_write(run.folder / _NAME.format(run.rank, os.getpid(), request)) as stream:
        stream.write(msgspec.json.encode(frames_of(frame)))
