"""Tells that the script ends its process at once, by `os._exit`: nothing else of Python's runs then."""

import _thread
import functools
import operator
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from perfkit.record.own_threads import is_own_thread

_LIMIT_S: Final = 1.0
"""How long the process may go on for perfkit: it may be one that cannot end otherwise, and hold any lock."""


def before_exit_at_once(action: Callable[[int], None]) -> None:
    """Call `action`, in another thread, with the exit code before `os._exit` ends this process, not a forked child.

    Where perfkit ends the process, from a thread of its own, it has recorded why before.
    """
    pid, leave = os.getpid(), os._exit

    @functools.wraps(leave)
    def hooked(status: int) -> NoReturn:
        if os.getpid() == pid and not is_own_thread():
            with suppress(Exception):  # no more threads, or not an integer, which `os._exit` refuses
                _call(action, operator.index(status) & 0xFF)
        leave(status)

    os._exit = hooked


def _call(action: Callable[[int], None], code: int) -> None:
    """Call `action` in a thread, and wait for it up to the limit.

    Not a `threading.Thread`: starting one waits without a limit, for locks that the program may hold here and for the
    thread to run, which it does no more once the interpreter has begun to end.
    """
    ended = _thread.allocate_lock()
    ended.acquire()

    def run() -> None:
        try:
            action(code)
        finally:
            ended.release()

    _thread.start_new_thread(run, ())
    ended.acquire(timeout=_LIMIT_S)
