"""A Python process that works for this one: started plainly, and not by `multiprocessing`.

multiprocessing's `fork` copies a process whose threads may hold locks, its `spawn` and `forkserver` run the user's main
script again, its pool breaks as a whole where one process is killed, and its processes outlive a parent that is. Here a
child has one pipe: it serves what comes through it, and ends when the other end does, however that came about.
"""

import atexit
import os
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, NoReturn

from perfkit.errors import LaunchEnvironmentError, WorkerError
from perfkit.util.malloc import trim_large_allocations

_PIECE: Final = 1_000_000
"""Progress (in bytes) is reported in pieces of at least this size."""

Progress = Callable[[int], None]


class WorkerProcess:
    """A child process.

    Raises:
        LaunchEnvironmentError: it cannot be started.
    """

    def __init__(self) -> None:
        self._pipe, theirs = Pipe()
        # -P: what lies in the current folder, traces of others, is not imported.
        serve_here = f"from perfkit.executors.worker_process import serve; serve({theirs.fileno()})"
        try:
            with theirs:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-c", f"import sys; sys.path[:] = {sys.path!r}; {serve_here}"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    process_group=0,  # Ctrl-C is for the parent, which then ends its children
                )
        except OSError as error:
            self._pipe.close()
            raise LaunchEnvironmentError(f"cannot start a worker process: {error.strerror or error}") from error

    def call(self, function: Callable[..., Any], *args: Any, progress: Progress | None = None) -> Any:
        """Return what `function(*args)` returns there, or raise what it raises.

        Args:
            function: picklable by its name.
            args: picklable.
            progress: called here with what `function` reports to its own argument `progress`.

        Raises:
            WorkerError: the child died.
        """
        try:
            self._pipe.send((function, args, progress is not None))
            while True:
                kind, value = self._pipe.recv()
                if kind == "result":
                    return value
                if kind == "error":
                    raise value
                if progress:
                    progress(value)
        except (EOFError, BrokenPipeError, ConnectionResetError) as error:
            raise WorkerError(f"its worker process {self._fate()}") from error

    def _fate(self) -> str:
        self._pipe.close()
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return "was killed (SIGKILL): was memory short? Fewer --workers need less"
        return f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def end(self) -> None:
        """End the child at once and wait until it has; harmless where it has ended."""
        self.process.kill()
        self.process.wait()


def serve(descriptor: int) -> NoReturn:
    """Do in this process what comes through the pipe, until its other end is closed."""
    trim_large_allocations()
    pipe, lock = Connection(descriptor), Lock()
    jobs: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], bool]] = SimpleQueue()

    def send(kind: str, value: Any) -> None:
        with lock:
            pipe.send((kind, value))

    # A thread waits for the parent's end, so that its death stops the work in the middle.
    Thread(target=_receive, args=(pipe, jobs), daemon=True).start()
    while True:
        function, args, reports = jobs.get()
        options = {"progress": _in_pieces(lambda count: send("progress", count))} if reports else {}
        try:
            kind, value = "result", function(*args, **options)
        # The outermost boundary of this process: the parent raises it again.
        except Exception as error:  # noqa: BLE001
            error.add_note("In a worker process:\n" + traceback.format_exc())
            kind, value = "error", error
        try:
            send(kind, value)
        except OSError:
            os._exit(0)  # nobody is there to hear it


def _receive(pipe: Connection, jobs: "SimpleQueue[Any]") -> None:
    try:
        while True:
            jobs.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(0)


def _in_pieces(report: Progress) -> Progress:
    """Return a progress callback that passes on sums of at least `_PIECE`."""
    held = 0

    def add(count: int) -> None:
        nonlocal held
        held += count
        if held >= _PIECE:
            report(held)
            held = 0

    return add


_idle: list[WorkerProcess] = []
_apart: set[WorkerProcess] = set()
"""All that `run_in_worker_process` started, at work or idle."""


def run_in_worker_process(function: Callable[..., Any], *args: Any) -> Any:
    """Return `function(*args)` from a child of this process, which is kept for the next call.

    For workers that others started (an MPI rank, a dask worker): what is killed for its memory, or holds Python's lock
    for long, is then the child and not the worker.
    """
    try:
        child = _idle.pop()
    except IndexError:
        child = WorkerProcess()
        _apart.add(child)
    try:
        return child.call(function, *args)
    finally:
        if child.process.poll() is None:
            _idle.append(child)
        else:
            _apart.discard(child)


@atexit.register
def stop_worker_processes() -> None:
    """End the children of `run_in_worker_process`."""
    _idle.clear()
    while _apart:
        _apart.pop().end()
