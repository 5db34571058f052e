"""Run a function when SIGTERM arrives; the signal then ends the process as it would have without the hook.

Python runs a signal handler between two bytecodes of the main thread. While that thread waits inside a collective no
handler runs, and the process would not end at all: so a second thread watches, and ends the process after a while.
"""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

from perfkit.record.own_threads import start_own_thread

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
