"""`perfkit`, which prints the bytes allocated by malloc and the open descriptors at an interval of steps, on stderr.

A line is `heap STEP BYTES DESCRIPTORS`.

Usage: python tests/support/processes/heap_of_run.py EVERY run gpt ...

Resident memory swings by megabytes, and contains what an allocator keeps; this is exact to some kilobytes.
"""

import ctypes
import gc
import os
import sys
from typing import Any

from perfkit.__main__ import main
from perfkit.record.recording.recording import Recording

_FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _MallocInfo(ctypes.Structure):
    """Glibc's `struct mallinfo2`."""

    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS]


def heap_bytes() -> int:
    """Return the bytes in use in all heaps of malloc and in its own mappings, without cyclic garbage."""
    gc.collect()
    ask = ctypes.CDLL(None).mallinfo2
    ask.restype = _MallocInfo
    info = ask()
    return int(info.uordblks + info.hblkhd)


def print_heap(every: int) -> None:
    """Let sessions print the heap after every so many steps."""
    step = Recording.step

    def measured(self: Recording, loss: Any = None) -> None:
        step(self, loss)
        if self.steps % every == 0:
            print(f"heap {self.steps} {heap_bytes()} {len(os.listdir('/proc/self/fd'))}", file=sys.stderr, flush=True)

    Recording.step = measured  # type: ignore[method-assign]


if __name__ == "__main__":
    print_heap(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
