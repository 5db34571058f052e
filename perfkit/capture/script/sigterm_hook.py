"""A last word before SIGTERM ends the process, which it then does as it would have without.

Python runs a handler between two bytecodes of the main thread. A thread that waits inside a collective has none, and
a process with a handler would not end at all: so a second thread watches, and ends it after a while.
"""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Final

GRACE_S: Final = 3.0
"""How long the main thread has to come back to Python."""

_EXIT_CODE: Final = 128 + signal.SIGTERM


class SigtermHook:
    """Calls `say` on SIGTERM, unless the script has a handler of its own.

    Args:
        say: Called in the main thread, once.
        note: Called instead in a thread of its own where the main thread does not come back.
    """

    def __init__(self, say: Callable[[], None], note: Callable[[], None]) -> None:
        self._say = say
        self._note = note
        self._heard = threading.Event()

    def install(self) -> None:
        """Begin to listen; without effect outside the main thread, and where somebody else listens already."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            return
        signal.signal(signal.SIGTERM, self._handle)
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        other = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        if other != -1:  # an event loop's: it needs it more
            signal.set_wakeup_fd(other)
            return
        os.register_at_fork(after_in_child=self._forget)
        threading.Thread(target=self._watch, args=(reader,), name="perfkit-farewell", daemon=True).start()

    @property
    def _installed(self) -> bool:
        return signal.getsignal(signal.SIGTERM) == self._handle

    def _forget(self) -> None:
        """Leave a forked child as it would be by itself."""
        if self._installed:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self._heard.set()
        signal.signal(number, signal.SIG_DFL)  # a second one ends it at once
        self._say()
        os.kill(os.getpid(), number)

    def _watch(self, reader: int) -> None:
        while numbers := os.read(reader, 64):
            if signal.SIGTERM in numbers and self._installed and not self._heard.wait(GRACE_S):
                self._note()
                os._exit(_EXIT_CODE)
