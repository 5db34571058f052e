"""This process and its children: Python started again, memory returned to the system, Ctrl-C.

While torch is imported, an exception from a signal handler can surface anywhere: C++ code that called Python aborts, a
bare `except` swallows it. So at Ctrl-C, a process with nothing to clean up exits at once. For ranks that
`perfkit run -n` started, the parent prints the only message.
"""

import atexit
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final, NoReturn

_M_MMAP_THRESHOLD: Final = -3
"""`M_MMAP_THRESHOLD` of glibc's malloc.h."""
_LARGE_BYTES: Final = 1 << 20
"""Arrays from this size on return to the system when they are freed."""
_OBJECTS: Final = 100_000
"""New objects after which cycles of garbage are looked for."""
EXIT_INTERRUPTED: Final = 130
"""128 + SIGINT, as in a shell."""
_LINE: Final = b"perfkit: error: interrupted\n"


def child_python(module: str, function: str) -> list[str]:
    """Return the command that calls a function of a module of perfkit; arguments may be appended.

    `python -m` searches the working directory first, even for modules of the standard library. Here the child searches
    the places that this process does. The option `-P` would also change how the child runs a user's script.
    """
    first = sys.path[0] if sys.path else ""
    return [sys.executable, "-c", f"import sys; sys.path[0] = {first!r}; from {module} import {function}; {function}()"]


def prepare_for_reading() -> None:
    """Choose settings of memory that suit a process which does nothing but read traces.

    Large arrays return to the system as soon as they are freed. glibc adapts its threshold to the first large block
    that is freed, and from then on keeps blocks of that size (up to 32 MiB) in its heap, which fragments: a fifth of
    the peak for traces with millions of collectives.

    Cycles of garbage are looked for after 100,000 new objects, not 700, and not at the end: what is imported or read
    stays, or has none. That takes a tenth off the time of a small trace. Commands that run for long (`serve`, `view`,
    `watch`) have this setting too: it delays collections, and prevents none.
    """
    gc.set_threshold(_OBJECTS)
    atexit.register(gc.freeze)
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):  # musl has none
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


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
