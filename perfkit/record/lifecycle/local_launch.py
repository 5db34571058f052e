"""`perfkit run -n N`: start N ranks on this host, pass signals on, and leave no process behind."""

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from perfkit.base.atomic_write import temporary_prefix
from perfkit.base.polling import POLL_S, wait_until
from perfkit.base.process import child_python, sigint_blocked
from perfkit.errors import LaunchEnvironmentError, RunError, UsageError
from perfkit.record.distributed.known_launchers import RENDEZVOUS_VARIABLE, find_launcher
from perfkit.record.distributed.launcher_env import FAILURE_GRACE_S, detect_rank, needs_mpi
from perfkit.record.endings import HangupError, TerminatedError, is_due_to_another_rank
from perfkit.record.lifecycle.launched_runs import FirstFailure, close_runs, name_cause, read_first_failure
from perfkit.record.messages import print_error

STDIN_VARIABLE: Final = "PERFKIT_STDIN"
"""File descriptor of the parent's stdin, for rank 0."""

_QUIT_S: Final = 3.0
"""How long the other ranks may take to end by themselves after one failed, and again after SIGTERM."""
_EXPLAIN_S: Final = 6.0
"""The same for ranks of a script before SIGTERM: they write what they did, and one compares it."""
_GROUP_QUIT_S: Final = 1.0
"""How long what the ranks have started may take to end after SIGTERM."""
_CAUGHT: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
"""Signals of which a second one ends ranks that ignore the first."""
_OF_SCRIPTS: Final[Mapping[int, int]] = {signal.SIGHUP: signal.SIGTERM}
"""Signals that the ranks of a script get as another one: SIGHUP would end most scripts without a word."""

_Children = list[subprocess.Popen[bytes]]


def launch(arguments: Sequence[str], ranks: int, *, name_failed: bool = False, records: bool = True) -> None:
    """Run `perfkit ARGUMENTS` as `ranks` processes on this host and wait for them.

    Args:
        name_failed: Whether to report which of several ranks failed first: the ranks of a script do not.
        records: Whether the ranks write cycles, which a killed rank leaves behind.

    Raises:
        KeyboardInterrupt: A rank was interrupted, most likely together with all others.
        HangupError: A script was ended by SIGHUP.
        TerminatedError: The ranks were ended by SIGTERM, or by a second SIGTERM or SIGHUP, having ignored the first.
        RunError: A rank was killed by another signal.
        SystemExit: A rank failed, with its exit code; the rank has reported the error itself.
    """
    # Signals stay caught until nothing is left behind: a second one only shortens the waits.
    prefix = temporary_prefix("perfkit-ranks")
    with _caught_signals() as signals, tempfile.TemporaryDirectory(prefix=prefix) as folder:
        children: _Children = []
        reason = None
        try:
            for rank in range(ranks):
                children.append(_start(arguments, rank, ranks, Path(folder) / "rendezvous"))
            failed = wait_for_ranks(children, signals.to_forward(_OF_SCRIPTS if name_failed else {}))
            left_early = [rank for rank, child in enumerate(children) if child.returncode == 0]
        except TerminatedError as error:
            reason = str(error)
            raise
        finally:
            codes = _end(children, signals, _EXPLAIN_S if name_failed else _QUIT_S, Path(folder))
            close_runs(Path(folder), codes, reason)
        first = read_first_failure(Path(folder))
    if failed is None:
        return
    code = children[failed].returncode
    _raise_if_all_end(code, signals.received, codes, first, is_script=name_failed)
    if name_failed and ranks > 1 and code > 0:
        failed = _report_first_failure(failed, codes, first, left_early)
        code = codes[failed] or code
    why = f"; {first.diagnosis}" if first is not None and first.diagnosis else ""
    _raise_exit(failed, code, f"{why}{'; the cycles written before are kept' if records else ''}")


def _report_first_failure(
    failed: int, codes: list[int | None], first: FirstFailure | None, left_early: list[int]
) -> int:
    """Report which rank failed first, and return it; a failure that a rank has recorded is preferred.

    Args:
        codes: Exit codes of the ranks that ended by themselves.
        left_early: Ranks that had ended with exit code 0 by then.
    """
    if first is None or first.rank >= len(codes):
        print_error(f"rank {failed} ended with exit code {codes[failed]}")
        return failed
    code = codes[first.rank]
    if code is not None and code < 0:  # it was killed, and whoever found it gone does not know by which signal
        return first.rank
    others = [rank for rank in left_early if rank != first.rank]
    if others and code and is_due_to_another_rank(first.line):
        print_error(f"rank {others[0]} ended early, with exit code 0; then {first.line}")
    else:
        print_error(first.line)
    return first.rank


def is_child() -> bool:
    return RENDEZVOUS_VARIABLE in os.environ


def refuse_inside_launcher() -> None:
    """Refuse `-n` if a launcher has already started several ranks."""
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
    # In a separate session, so that Ctrl-C in the terminal reaches a rank once, through the parent.
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


class _Signals:
    """Signals that have arrived at this process."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._forwarded = 0

    def note(self, number: int, _frame: FrameType | None) -> None:
        self.received.append(number)

    def to_forward(self, translated: Mapping[int, int]) -> Iterator[int | None]:
        """Yield the signals to forward, as they arrive; None whenever there is none."""
        while True:
            if self._forwarded == len(self.received):
                yield None
                continue
            number = self.received[self._forwarded]
            self._forwarded += 1
            if number in _ENDING and self.received[: self._forwarded - 1].count(number):
                error = HangupError if number == signal.SIGHUP else TerminatedError
                raise error(f"ended by a second {signal.Signals(number).name}: the ranks went on after the first")
            yield translated.get(number, number)

    def take(self) -> bool:
        """Return whether a signal has arrived that was neither forwarded nor taken, and take it."""
        if self._forwarded == len(self.received):
            return False
        self._forwarded += 1
        return True


@contextlib.contextmanager
def _caught_signals() -> Iterator[_Signals]:
    """Collect the signals that arrive, to be forwarded once all ranks have been started."""
    signals = _Signals()
    caught = [number for number in _CAUGHT if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP]
    before = {number: signal.signal(number, signals.note) for number in caught}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_for_ranks(children: _Children, to_forward: Iterator[int | None]) -> int | None:
    """Wait until all have ended or one has failed, and forward signals; returns the rank that failed.

    Of several failed ranks, one that was ended by a signal is preferred: the others may have failed because of it.
    """
    while True:
        while (number := next(to_forward, None)) is not None:
            for child in children:
                child.send_signal(number)  # does nothing if it has ended
        codes = [child.poll() for child in children]
        failed = sorted((code > 0, rank) for rank, code in enumerate(codes) if code)
        if failed or None not in codes:
            return failed[0][1] if failed else None
        time.sleep(POLL_S)


def _end(children: _Children, signals: _Signals, first_wait_s: float, notes: Path) -> list[int | None]:
    """End the ranks that still run, and what they have started if one has failed; returns the codes of the others."""
    codes: list[int | None] = []
    for stop in (None, signal.SIGTERM, signal.SIGKILL):
        running = [child for child in children if child.poll() is None]
        if stop is not None:
            codes = codes or [child.returncode for child in children]
            if stop == signal.SIGTERM and running and any(codes) and not signals.received:
                name_cause(notes, codes)
            for child in running:
                child.send_signal(stop)
        _wait_for_end(running, signals, first_wait_s if stop is None else _QUIT_S)
    for child in children:
        child.wait()
        if child.stdin is not None:
            child.stdin.close()
    if any(child.returncode for child in children):
        _end_groups(children)
    return codes


def _wait_for_end(children: _Children, signals: _Signals, limit_s: float) -> None:
    """Wait until children have ended, at most so long; a signal ends the wait."""
    wait_until(lambda: all(child.poll() is not None for child in children) or signals.take(), limit_s)


def _end_groups(children: _Children) -> None:
    """End what the ranks have started: each is the first process of its own group, which outlives it."""
    for stop in (signal.SIGTERM, signal.SIGKILL):
        left = [child.pid for child in children if _signal_group(child.pid, stop)]
        deadline = time.monotonic() + _GROUP_QUIT_S
        while any(_signal_group(pid, 0) for pid in left) and time.monotonic() < deadline:
            time.sleep(POLL_S)


def _signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group, 0 for none; returns whether it has any process."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _raise_if_all_end(
    code: int, received: Sequence[int], codes: Sequence[int | None], first: FirstFailure | None, *, is_script: bool
) -> None:
    """Raise the error where all ranks end together: for a hang, or by a signal that this process was sent.

    Such a signal may end a rank that has no handler yet.
    """
    if signal.SIGHUP in received and is_script:
        raise HangupError("ended by SIGHUP: the terminal or the connection was closed")
    if first is not None and first.ends_others:
        print_error(first.line)
        raise SystemExit(1)
    if -code not in (set(received) & set(_ENDING)):
        return
    error = HangupError if code == -signal.SIGHUP else TerminatedError
    if codes[0] == error.exit_code:  # rank 0 had one, and has reported it
        raise SystemExit(error.exit_code)
    raise error(f"ended by {signal.Signals(-code).name}")


def _raise_exit(rank: int, code: int, more: str) -> None:
    if code == -signal.SIGINT:
        raise KeyboardInterrupt
    if code == -signal.SIGTERM:
        raise RunError(f"rank {rank} was ended by SIGTERM")
    if code < 0:
        # Only the kernel sends SIGKILL unasked; a process that aborts, or crashes, has mostly printed why.
        where = "the system log for the cause (out of memory?)" if code == -signal.SIGKILL else "its own last lines"
        raise RunError(f"rank {rank} was killed by {signal.Signals(-code).name}: see {where}{more}")
    raise SystemExit(code)


def leave_error_to_rank_0() -> None:
    """End every other rank: all have the same command line, so rank 0 reports its error."""
    if is_child() or needs_mpi(os.environ) or "RANK" in os.environ:
        try:
            rank = detect_rank(os.environ).rank
        except LaunchEnvironmentError:
            return
        if rank > 0:
            time.sleep(FAILURE_GRACE_S)  # a launcher may kill rank 0 as soon as this one has ended
            raise SystemExit(UsageError.exit_code)
