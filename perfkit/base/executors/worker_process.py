"""Worker subprocess driven over a pipe, without `multiprocessing`.

multiprocessing's `fork` copies a process whose threads may hold locks, its `spawn` and `forkserver` run the user's main
script again, one killed process breaks its whole pool, and its processes outlive a killed parent. Here a child serves
one pipe, and exits when the other end is closed, for whatever reason.
"""

import atexit
import logging
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

from perfkit.base.process import prepare_for_reading
from perfkit.errors import LaunchEnvironmentError, WorkerError

_PROGRESS_BYTES: Final = 1_000_000
"""Least progress (in bytes) to report at once."""

Progress = Callable[[int], None]


class WorkerProcess:
    """A child process.

    Raises:
        LaunchEnvironmentError: it cannot be started.
    """

    def __init__(self) -> None:
        self._pipe, child_end = Pipe()
        # -P: nothing is imported from the current folder, which may hold anything.
        serve_here = f"from perfkit.base.executors.worker_process import serve; serve({child_end.fileno()})"
        try:
            with child_end:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-c", f"import sys; sys.path[:] = {sys.path!r}; {serve_here}"],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(child_end.fileno(),),
                    process_group=0,  # Ctrl-C goes to the parent, which then stops its children
                )
        except OSError as error:
            self._pipe.close()
            raise LaunchEnvironmentError(f"cannot start a worker process: {error.strerror or error}") from error

    def call(self, function: Callable[..., Any], *args: Any, progress: Progress | None = None) -> Any:
        """Run `function(*args)` in the child and return its result, or raise its error.

        Args:
            function: must be picklable by name.
            args: must be picklable.
            progress: called here with what `function` passes to its own argument `progress`.

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
            raise WorkerError(f"its worker process {self._exit_cause()}") from error

    def _exit_cause(self) -> str:
        self._pipe.close()
        code = self.process.wait()
        if code == -signal.SIGKILL:
            return "was killed (SIGKILL), perhaps for its memory: try fewer --workers"
        return f"died from {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"

    def kill(self) -> None:
        """Kill the child and wait for its exit; harmless if it has exited."""
        self.process.kill()
        self.process.wait()


def serve(descriptor: int) -> NoReturn:
    """Run the jobs that arrive through the pipe, until its other end is closed."""
    prepare_for_reading()
    # The parent reports plug-ins that cannot be loaded; every worker would repeat it.
    logging.getLogger("perfkit").setLevel(logging.ERROR)
    pipe, lock = Connection(descriptor), Lock()
    jobs: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], bool]] = SimpleQueue()

    def send(kind: str, value: Any) -> None:
        with lock:
            pipe.send((kind, value))

    # A thread waits for the pipe to close, so that the parent's death stops a running job.
    Thread(target=_receive, args=(pipe, jobs), daemon=True).start()
    while True:
        function, args, reports_progress = jobs.get()
        options = {"progress": _in_batches(lambda count: send("progress", count))} if reports_progress else {}
        try:
            kind, value = "result", function(*args, **options)
        # The outermost boundary of this process: the parent raises it again.
        except Exception as error:  # noqa: BLE001
            error.add_note("In a worker process:\n" + traceback.format_exc())
            kind, value = "error", error
        try:
            send(kind, value)
        except OSError:
            os._exit(0)  # the parent is gone


def _receive(pipe: Connection, jobs: "SimpleQueue[Any]") -> None:
    try:
        while True:
            jobs.put(pipe.recv())
    except (EOFError, OSError):
        os._exit(0)


def _in_batches(report: Progress) -> Progress:
    """Return a progress callback that passes on sums of at least `_PROGRESS_BYTES`."""
    held = 0

    def add(count: int) -> None:
        nonlocal held
        held += count
        if held >= _PROGRESS_BYTES:
            report(held)
            held = 0

    return add


_idle: list[WorkerProcess] = []
_children: set[WorkerProcess] = set()
"""All children of `run_in_worker_process`, busy or idle."""


def run_in_worker_process(function: Callable[..., Any], *args: Any) -> Any:
    """Run `function(*args)` in a child of this process, which is kept for the next call.

    For workers that others started (an MPI rank, a dask worker): it is then the child, not the worker, that is killed
    for its memory or holds the GIL for long.
    """
    try:
        child = _idle.pop()
    except IndexError:
        child = WorkerProcess()
        _children.add(child)
    try:
        return child.call(function, *args)
    finally:
        if child.process.poll() is None:
            _idle.append(child)
        else:
            _children.discard(child)


@atexit.register
def stop_worker_processes() -> None:
    """Kill the children of `run_in_worker_process`."""
    _idle.clear()
    while _children:
        _children.pop().kill()
