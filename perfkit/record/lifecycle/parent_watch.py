"""Ends the ranks that `perfkit run -n` started when their parent dies, however it dies."""

import multiprocessing
import multiprocessing.util
import os
import signal
import threading
from collections.abc import Callable
from typing import NoReturn

from perfkit.base.process import end_as_rank
from perfkit.base.standard_streams import flush_all
from perfkit.record.lifecycle.local_launch import STDIN_VARIABLE, is_child
from perfkit.record.own_threads import start_own_thread

_STDIN = 0

_actions: list[Callable[[], None]] = []
_last_actions: list[Callable[[], None]] = []


def exit_with_parent() -> None:
    """End this process once the parent closes its end of the stdin pipe; stdin is replaced by the parent's stdin."""
    if is_child():
        pipe = os.dup(_STDIN)
        given = os.environ.pop(STDIN_VARIABLE, None)
        source = os.open(os.devnull, os.O_RDONLY) if given is None else int(given)
        os.dup2(source, _STDIN)
        os.close(source)
        start_own_thread("parent", _wait_for_end, pipe)


def before_end_with_parent(action: Callable[[], None], *, last: bool = False) -> None:
    """Call `action`, in another thread, before the process ends because its parent has.

    Args:
        action: It may raise: the process ends all the same.
        last: Whether to call it when nothing else is left to do: other threads have little time to undo it.
    """
    (_last_actions if last else _actions).append(action)


def _wait_for_end(descriptor: int) -> None:
    while os.read(descriptor, 1):
        pass
    try:
        try:
            for action in _actions:
                action()
        finally:
            _release()
            for action in _last_actions:
                action()
    finally:
        if os.getpgrp() == os.getpid():  # what the rank has started would outlive it
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(1)


def exit_now(code: int, *, flush_limit_s: float | None = None) -> NoReturn:
    """End this process and its loader workers, without waiting for other ranks.

    Args:
        code: The exit code; -SIGINT ends the process by that signal.
        flush_limit_s: How long writing what is buffered for stdout and stderr may take; None: for ever.
    """
    _release(flush_limit_s)
    if code == -signal.SIGINT:
        end_as_rank()
    os._exit(code)


def write_within(limit_s: float, action: Callable[[], None]) -> None:
    """Call `action`, and go on after a while whether or not it has returned.

    It writes to stdout or stderr: the main thread may be inside such a write that does not return, and hold the lock.
    """
    writing = threading.Thread(target=action, daemon=True)
    writing.start()
    writing.join(limit_s)


def _release(flush_limit_s: float | None = None) -> None:
    for child in multiprocessing.active_children():
        child.terminate()
    # As the interpreter does when it exits: otherwise the semaphores of loader workers are reported as leaked.
    multiprocessing.util._run_finalizers(0)  # type: ignore[attr-defined]
    if flush_limit_s is None:
        flush_all()
        return
    write_within(flush_limit_s, flush_all)
