"""Tune glibc's malloc in perfkit's own processes."""

import ctypes
import sys
from typing import Final

_M_MMAP_THRESHOLD: Final = -3
_LARGE_BYTES: Final = 1 << 20


def trim_large_allocations() -> None:
    """Return large arrays to the system as soon as they are freed.

    glibc adapts its threshold to the first large block that is freed, and from then on keeps blocks of that size (up to
    32 MiB) in its heap, which fragments: a fifth of the peak for traces with millions of collectives. Only for
    processes that do nothing but read traces: a program that calls perfkit keeps its own settings.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):  # musl has none
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
