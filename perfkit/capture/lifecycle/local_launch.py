"""`perfkit run -n N`: start N ranks on this host, pass signals on, and leave no process behind."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from perfkit.capture.distributed.launcher_env import RENDEZVOUS_VARIABLE, detect_rank, find_launcher
from perfkit.capture.lifecycle.first_failure import FirstFailure, read_first_failure
from perfkit.capture.messages import print_error
from perfkit.errors import RunError, UsageError
from perfkit.util.child_python import child_python
from perfkit.util.sigint import sigint_blocked

STDIN_VARIABLE: Final = "PERFKIT_STDIN"
"""File descriptor of the parent's stdin, for rank 0."""

_POLL_S: Final = 0.02
_QUIT_S: Final = 3.0
"""How long the other ranks may take to end by themselves after one failed, and again after SIGTERM."""

_Children = list[subprocess.Popen[bytes]]


def launch(arguments: Sequence[str], ranks: int, *, name_failed: bool = False) -> None:
    """Run `perfkit ARGUMENTS` as `ranks` processes on this host and wait for them.

    Args:
        arguments: perfkit's own arguments, with which each rank is started.
        ranks: Number of ranks.
        name_failed: Whether to report which of several ranks failed first: the ranks of a script do not.

    Raises:
        KeyboardInterrupt: A rank was interrupted, most likely together with all others.
        RunError: A rank was killed by another signal.
        SystemExit: A rank failed, with its exit code; the rank has reported the error itself.
    """
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        children: _Children = []
        try:
            with _caught_signals() as received:
                for rank in range(ranks):
                    children.append(_start(arguments, rank, ranks, Path(folder) / "rendezvous"))
                failed = wait_for_ranks(children, received)
        finally:
            _end(children)
        first = read_first_failure(Path(folder))
    if failed is None:
        return
    codes = [child.returncode for child in children]
    if name_failed and ranks > 1 and codes[failed] > 0:
        failed = _report_first_failure(failed, codes, first)
    _raise_exit(failed, codes[failed])


def _report_first_failure(failed: int, codes: list[int], first: FirstFailure | None) -> int:
    """Print which rank failed first, and return it; a failure that the rank itself has recorded is preferred."""
    if first is not None and first.rank < len(codes) and codes[first.rank] > 0:
        print_error(first.line)
        return first.rank
    print_error(f"rank {failed} ended with exit code {codes[failed]}")
    return failed


def is_child() -> bool:
    """Return whether this process is a rank that `launch` started."""
    return RENDEZVOUS_VARIABLE in os.environ


def refuse_inside_launcher() -> None:
    """Refuse `-n` if a launcher has already started several ranks.

    Raises:
        UsageError: A launcher has.
    """
    launcher = find_launcher(os.environ)
    if launcher is not None and detect_rank(os.environ).world_size > 1:
        raise UsageError(
            f"-n inside {launcher.name}, which has already started several ranks: omit -n, or run "
            f"without {launcher.name}"
        )


def _start(arguments: Sequence[str], rank: int, ranks: int, rendezvous: Path) -> subprocess.Popen[bytes]:
    quiet = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # torch reads it once, when it is imported
    environment = (
        quiet
        | os.environ
        | {
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
            "LOCAL_RANK": str(rank),
            "LOCAL_WORLD_SIZE": str(ranks),
            RENDEZVOUS_VARIABLE: str(rendezvous),
        }
    )
    stdin = _own_stdin() if rank == 0 else None
    if stdin is not None:
        environment[STDIN_VARIABLE] = str(stdin)
    # In a session of its own, so that Ctrl-C in the terminal reaches a rank once, through the parent.
    # The end of the pipe on stdin shows a rank that the parent has died (see `exit_with_parent`).
    with sigint_blocked():  # otherwise an interrupt while Python starts prints a traceback
        return subprocess.Popen(
            [*child_python("perfkit.__main__", "start"), *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=() if stdin is None else (stdin,),
        )


def _own_stdin() -> int | None:
    """Return a copy of this process's stdin; None if it is closed, or a terminal, which another session cannot read."""
    try:
        return None if os.isatty(0) else os.dup(0)
    except OSError:
        return None


@contextlib.contextmanager
def _caught_signals() -> Iterator[list[int]]:
    """Yield a list that collects the signals that arrive, to be forwarded once all ranks have been started."""
    received: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for_ranks(children: _Children, received: list[int]) -> int | None:
    """Wait until all have ended or one has failed, and forward signals; returns the rank that failed.

    Of several failed ranks, one that was ended by a signal is preferred: the others may have failed because of it.
    """
    while True:
        while received:
            number = received.pop(0)
            for child in children:
                child.send_signal(number)  # does nothing if it has ended
        codes = [child.poll() for child in children]
        failed = sorted((code > 0, rank) for rank, code in enumerate(codes) if code)
        if failed or None not in codes:
            return failed[0][1] if failed else None
        time.sleep(_POLL_S)


def _end(children: _Children) -> None:
    for stop in (None, signal.SIGTERM, signal.SIGKILL):
        running = [child for child in children if child.poll() is None]
        if stop is not None:
            for child in running:
                child.send_signal(stop)
        deadline = time.monotonic() + _QUIT_S
        while any(child.poll() is None for child in running) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
    for child in children:
        child.wait()
        if child.stdin is not None:
            child.stdin.close()


def _raise_exit(rank: int, code: int) -> None:
    if code == -signal.SIGINT:
        raise KeyboardInterrupt
    if code == -signal.SIGTERM:
        raise RunError(f"rank {rank} was ended by SIGTERM")
    if code < 0:
        raise RunError(
            f"rank {rank} was killed by {signal.Signals(-code).name}: see the system log for the cause "
            "(out of memory?); the cycles written before are kept"
        )
    raise SystemExit(code)
