"""How the C library keeps memory that was freed, in processes that are perfkit's own."""

import ctypes
import sys
from typing import Final

_M_MMAP_THRESHOLD: Final = -3
_LARGE_BYTES: Final = 1 << 20


def trim_large_allocations() -> None:
    """Have large arrays go back to the system as soon as they are freed.

    glibc learns from the first that is freed to keep those of its size (up to 32 MiB) in its heap, where they leave
    holes: of traces with millions of collectives a fifth of the peak. For processes that read traces and nothing else:
    a program that calls perfkit keeps its own ways.
    """
    if sys.platform == "linux" and (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)):  # musl has none
        mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
