"""What runs when a script's process is ended: by SIGTERM, or at once by `os._exit`.

SIGTERM then ends the process as it would have without the hook. Python runs a signal handler between two bytecodes of
the main thread. While that thread waits inside a collective no handler runs, and the process would not end at all: so a
second thread watches, and ends the process after a while. After `os._exit` nothing else of Python's runs.
"""

import _thread
import functools
import operator
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final, NoReturn

from perfkit.record.own_threads import is_own_thread, start_own_thread

GRACE_S: Final = 3.0
"""How long the main thread may take to return to Python."""

_EXIT_CODE: Final = 128 + signal.SIGTERM


class SigtermHook:
    """Calls `on_signal` on SIGTERM, unless the script has its own handler.

    Args:
        on_signal: Called in the main thread, once.
        on_stuck: Called instead, in a separate thread, if the main thread does not return to Python.
    """

    def __init__(self, on_signal: Callable[[], None], on_stuck: Callable[[], None]) -> None:
        self._on_signal = on_signal
        self._on_stuck = on_stuck
        self._handled = threading.Event()

    def install(self) -> None:
        """Install the handler; does nothing outside the main thread, or if there is another handler."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        signal.signal(signal.SIGTERM, self._handle)
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        other = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if other != -1:  # an event loop's, which takes precedence
            signal.set_wakeup_fd(other)
            return
        os.register_at_fork(after_in_child=self._uninstall)
        start_own_thread("sigterm", self._watch, reader)

    @property
    def _installed(self) -> bool:
        return signal.getsignal(signal.SIGTERM) == self._handle

    def _uninstall(self) -> None:
        if self._installed:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._handled.set()
        signal.signal(number, signal.SIG_DFL)  # a second SIGTERM ends the process at once
        try:
            self._on_signal()
        finally:  # whatever goes wrong there: it must not reach the script, which would go on
            os.kill(os.getpid(), number)

    def _watch(self, reader: int) -> None:
        while numbers := os.read(reader, 64):
            if signal.SIGTERM in numbers and self._installed and not self._handled.wait(GRACE_S):
                try:
                    self._on_stuck()
                finally:  # whatever goes wrong there, as on a full disk
                    os._exit(_EXIT_CODE)


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
