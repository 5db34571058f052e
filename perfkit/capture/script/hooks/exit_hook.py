"""Tells that the script ends its process at once, by `os._exit`: nothing else of Python's runs then."""

import functools
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NoReturn

from perfkit.capture.own_threads import start_own_thread

_LIMIT_S: Final = 1.0
"""How long the process may go on for perfkit: it may be one that cannot end otherwise, and hold any lock."""


def before_exit_at_once(action: Callable[[int], None]) -> None:
    """Call `action`, in another thread, with the exit code before `os._exit` ends this process, not a forked child."""
    pid, leave = os.getpid(), os._exit

    @functools.wraps(leave)
    def hooked(status: int) -> NoReturn:
        if os.getpid() == pid:
            with suppress(Exception):  # no more threads, or not a number, which `os._exit` refuses
                start_own_thread("exit", action, int(status)).join(_LIMIT_S)
        leave(status)

    os._exit = hooked
