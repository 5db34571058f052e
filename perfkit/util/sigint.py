"""Handle Ctrl-C where a KeyboardInterrupt does not work.

While torch is imported, an exception from a signal handler can surface anywhere: C++ code that called Python aborts, a
bare `except` swallows it. So a process with nothing to clean up exits at once. For ranks that `perfkit run -n` started,
the parent prints the only message.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

EXIT_INTERRUPTED: Final = 130  # 128 + SIGINT, as in a shell
_LINE: Final = b"perfkit: error: interrupted\n"


@contextmanager
def exit_on_sigint() -> Iterator[None]:
    """Exit on SIGINT with one line and no exception, unless another handler is installed."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _exit(_number: int, _frame: FrameType | None) -> NoReturn:
    os.write(2, _LINE)
    os._exit(EXIT_INTERRUPTED)


@contextmanager
def sigint_blocked() -> Iterator[None]:
    """Block SIGINT in this thread, and in child processes until they call `use_default_sigint`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def use_default_sigint() -> None:
    """Let SIGINT silently kill this process from now on, as a rank; a blocked one takes effect now."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])


def raise_keyboard_interrupt() -> None:
    """Undo `use_default_sigint`: SIGINT raises KeyboardInterrupt, because there is something to clean up."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def end_as_rank() -> NoReturn:
    """Exit by SIGINT, so that the parent sees the cause."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    os._exit(EXIT_INTERRUPTED)  # not reached


def clear_pending_interrupt() -> None:
    """Make the process exit with its own exit code although a KeyboardInterrupt was caught.

    CPython records one that passed through code compiled from a string, as in the creation of a dataclass, until such
    code runs again, and at exit kills the process by SIGINT (`run_eval_code_obj` in pythonrun.c).
    """
    exec("")  # noqa: S102
