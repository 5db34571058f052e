"""Gives memory that is free back to the operating system.

A cycle's events and its trace take tens of megabytes for a moment. The steps in between leave small blocks in the heap,
and glibc keeps what lies free between those: the process would grow from cycle to cycle although nothing is leaked.
"""

import ctypes
from collections.abc import Callable
from functools import cache


def give_back_free_memory() -> None:
    """Let the allocator return free pages (a few milliseconds); does nothing if it is not glibc's."""
    _malloc_trim()(0)


@cache
def _malloc_trim() -> Callable[[int], object]:
    try:
        trim: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return lambda _keep: None
    return trim
