"""`perfkit run -n N`: start N ranks on this host, pass signals on, and leave no process behind."""

import contextlib
import os
import signal
import subprocess
import sys
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
from perfkit.util.sigint import sigint_blocked

STDIN_VARIABLE: Final = "PERFKIT_STDIN"
"""Descriptor by which rank 0 finds the stdin of its parent."""

_POLL_S: Final = 0.02
_QUIT_S: Final = 3.0
"""How long the other ranks have to end by themselves after one failed, and again after SIGTERM."""

_Children = list[subprocess.Popen[bytes]]


def launch(arguments: Sequence[str], ranks: int, *, name_failed: bool = False) -> None:
    """Run `perfkit ARGUMENTS` as `ranks` processes on this host and wait for them.

    Args:
        arguments: perfkit's own, with which each rank is started.
        ranks: Number of ranks.
        name_failed: Whether to say which of several ranks has failed first: those of a script do not know.

    Raises:
        KeyboardInterrupt: A rank was interrupted, most likely as all were.
        RunError: A rank was killed by another signal.
        SystemExit: A rank failed, with its exit code; it has said why itself.
    """
    with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
        children: _Children = []
        try:
            with _forwarding() as noted:
                for rank in range(ranks):
                    children.append(_start(arguments, rank, ranks, Path(folder) / "rendezvous"))
                failed = wait_for_ranks(children, noted)
        finally:
            _end(children)
        word = read_first_failure(Path(folder))
    if failed is None:
        return
    codes = [child.returncode for child in children]
    if name_failed and ranks > 1 and codes[failed] > 0:
        failed = _name(failed, codes, word)
    _report(failed, codes[failed])


def _name(failed: int, codes: list[int], word: FirstFailure | None) -> int:
    """Say which rank failed first, and return it: by its own word where it left one."""
    if word is not None and word.rank < len(codes) and codes[word.rank] > 0:
        print_error(word.line)
        return word.rank
    print_error(f"rank {failed} ended with exit code {codes[failed]}")
    return failed


def is_child() -> bool:
    """Say whether this process is a rank that `launch` started."""
    return RENDEZVOUS_VARIABLE in os.environ


def refuse_inside_launcher() -> None:
    """Refuse `-n` where a launcher has started several ranks already.

    Raises:
        UsageError: It has.
    """
    launcher = find_launcher(os.environ)
    if launcher is not None and detect_rank(os.environ).world_size > 1:
        raise UsageError(
            f"-n inside {launcher.name}, which has started several ranks already: leave -n out, "
            f"or leave {launcher.name} out"
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
    # A session of its own: a Ctrl-C of the terminal reaches the ranks once, through the parent.
    # The pipe on stdin tells a rank that the parent has died (see `exit_with_parent`).
    with sigint_blocked():  # or Python would end with a traceback while it starts
        return subprocess.Popen(
            [sys.executable, "-m", "perfkit", *arguments],
            env=environment,
            stdin=subprocess.PIPE,
            start_new_session=True,
            pass_fds=() if stdin is None else (stdin,),
        )


def _own_stdin() -> int | None:
    """Return a copy of this process's stdin; None where it is closed, or a terminal: another session cannot read it."""
    try:
        return None if os.isatty(0) else os.dup(0)
    except OSError:
        return None


@contextlib.contextmanager
def _forwarding() -> Iterator[list[int]]:
    """Yield the signals that arrive, for the ranks once all have been started."""
    noted: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        noted.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield noted
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for_ranks(children: _Children, noted: list[int]) -> int | None:
    """Wait until all have ended or one has failed, and pass signals on; return the rank that failed.

    Of several that is one that a signal has ended: the others may well have failed because of it.
    """
    while True:
        while noted:
            number = noted.pop(0)
            for child in children:
                child.send_signal(number)  # does nothing to one that has ended
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


def _report(rank: int, code: int) -> None:
    if code == -signal.SIGINT:
        raise KeyboardInterrupt
    if code == -signal.SIGTERM:
        raise RunError(f"rank {rank} was ended by SIGTERM")
    if code < 0:
        raise RunError(
            f"rank {rank} was killed by {signal.Signals(-code).name}: see the system's log for why "
            "(out of memory?); the cycles written before are kept"
        )
    raise SystemExit(code)
