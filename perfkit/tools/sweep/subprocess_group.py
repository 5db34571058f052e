"""Start the processes of a point, wait for them, forward signals, and leave none behind."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import BinaryIO, Final, NamedTuple, Self

from perfkit.base.polling import POLL_S
from perfkit.errors import StoreError

_PATIENCE_S: Final = 20.0
"""Time for a launcher to end after a signal, before it and all its processes are killed."""

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Context manager that records termination signals instead of ending this process."""

    def __init__(self) -> None:
        self.last: signal.Signals | None = None
        self.count = 0

    def __enter__(self) -> Self:
        # nohup: the sweep should outlive the terminal.
        ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        noted = [number for number in _SIGNALS if not (ignored and number == signal.SIGHUP)]
        self._before = {number: signal.signal(number, self._note) for number in noted}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.last = signal.Signals(number)
        self.count += 1

    def sleep(self, seconds: float) -> None:
        """Sleep until the time is over or a signal arrives."""
        deadline = time.monotonic() + seconds
        while self.last is None and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, POLL_S))


class ProcessResult(NamedTuple):
    """How the processes of a point ended."""

    exit_code: int
    wall_ns: int


def run_process(command: Sequence[str], log: Path, signals: Signals, lock: int | None) -> ProcessResult:
    """Run a launcher to its end and forward signals to it.

    Raises:
        StoreError: The log cannot be written.
    """
    begin_ns = time.monotonic_ns()
    with _open_log(log) as stream:
        # In its own session: Ctrl-C in the terminal reaches the ranks once, through the launcher.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=() if lock is None else (lock,),
            env=_environment(),
        )
    try:
        _wait(process, signals)
    finally:
        if process.poll() is None:
            _kill([process.pid, *descendants(process.pid)])
        process.wait()
    return ProcessResult(process.returncode, time.monotonic_ns() - begin_ns)


def _environment() -> dict[str, str]:
    """Return the environment, in which Python imports nothing from the working directory unless this process does."""
    safe = sys.flags.safe_path or sys.path[:1] not in ([""], [os.getcwd()])
    return {**os.environ, "PYTHONSAFEPATH": "1"} if safe else dict(os.environ)


def _open_log(path: Path) -> BinaryIO:
    """Open a log to append to it; in a folder from somebody else it could be a link to a file of the user."""
    try:
        return open(path, "ab", opener=lambda name, flags: os.open(name, flags | os.O_NOFOLLOW, 0o666))
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error


def _wait(process: subprocess.Popen[bytes], signals: Signals) -> None:
    """Wait until a process ends; after a signal only for `_PATIENCE_S`."""
    passed_on, deadline = 0, None
    while process.poll() is None and (deadline is None or time.monotonic() < deadline):
        if signals.last is not None and signals.count > passed_on:
            passed_on, deadline = signals.count, deadline or time.monotonic() + _PATIENCE_S
            # A launcher may handle SIGHUP differently.
            process.send_signal(signal.SIGTERM if signals.last == signal.SIGHUP else signals.last)
        time.sleep(POLL_S)


def descendants(pid: int) -> list[int]:
    """Return all descendants of a process, on Linux. Ranks have their own sessions, so no group contains all."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:  # no /proc, or it has ended
        return []
    return [*children, *(below for child in children for below in descendants(child))]


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
