"""Ctrl-C where a KeyboardInterrupt is of no use.

While torch is imported an exception from a signal handler can surface anywhere: C++ that has called Python aborts, a
bare `except` swallows it. So a process that has nothing to clean up yet ends at once; of a rank that `perfkit run -n`
has started the parent says so, which is one line however far each rank has come.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as a shell has it
_LINE: Final = b"perfkit: error: interrupted\n"


@contextmanager
def exit_on_sigint() -> Iterator[None]:
    """Let SIGINT end the process with one line and no exception, unless somebody has decided otherwise."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    os.write(2, _LINE)
    os._exit(EXIT_INTERRUPTED)


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Hold SIGINT back from this thread, and from a process that it starts until that calls `use_default_sigint`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def use_default_sigint() -> None:
    """End by SIGINT silently from here on, as a rank; one that was held back ends it now."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def raise_keyboard_interrupt() -> None:
    """Let SIGINT raise KeyboardInterrupt where it has silently ended the process: there is something to clean up."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_as_rank() -> NoReturn:
    """End by SIGINT, which the parent takes for what it is."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    os._exit(EXIT_INTERRUPTED)  # not reached


def clear_pending_interrupt() -> None:
    """Let the process end with the exit code that it is given, though a KeyboardInterrupt was caught.

    CPython remembers one that has passed through code compiled from a string, as in the making of a dataclass, until
    such code is run again, and at the end kills the process by SIGINT for it (`run_eval_code_obj` in pythonrun.c).
    """
    exec("")  # noqa: S102
