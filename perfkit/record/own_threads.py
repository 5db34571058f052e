"""perfkit's own threads inside a program, which the program does not see.

They last as long as the process, so that a program that waits for the end of its other threads would wait for ever:
until `threading.active_count()` is 1, or by joining each of `threading.enumerate()`.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

OWN_THREAD: Final = "perfkit-"
"""Names of perfkit's threads begin so. Without names they would count among the program's: its first is `Thread-1`."""

_own: Final = weakref.WeakSet[threading.Thread]()

all_threads: Final = threading.enumerate
"""Returns the threads that run, perfkit's included."""


def start_own_thread(name: str, target: Callable[..., object], *args: Any) -> threading.Thread:
    """Start a thread of perfkit's, which the process does not wait for when it ends.

    Raises:
        RuntimeError: No thread can be started.
    """
    if threading.enumerate is all_threads:
        threading.enumerate = _threads_of_program
        threading.active_count = lambda: len(_threads_of_program())
    thread = threading.Thread(target=target, name=f"{OWN_THREAD}{name}", args=args, daemon=True)
    _own.add(thread)  # before it runs: the program may look at any time
    thread.start()
    return thread


def is_own_thread() -> bool:
    """Return whether perfkit has started the thread that calls this."""
    return threading.current_thread() in _own


def _threads_of_program() -> list[threading.Thread]:
    return [thread for thread in all_threads() if thread not in _own]
