"""Keys that are pressed, without waiting for Enter."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Wait = Callable[[float], str]
"""Waits for so many seconds, or until a key is pressed, which it returns; empty without one."""


@contextmanager
def pressed_keys() -> Iterator[Wait]:
    """Let the terminal pass on each key at once; where stdin is no terminal, there are no keys."""
    if not sys.stdin.isatty():
        yield _sleep
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield lambda seconds: _key(descriptor, seconds)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _sleep(seconds: float) -> str:
    time.sleep(seconds)
    return ""


def _key(descriptor: int, seconds: float) -> str:
    ready, _, _ = select.select([descriptor], [], [], seconds)
    return os.read(descriptor, 1).decode("ascii", "ignore") if ready else ""
