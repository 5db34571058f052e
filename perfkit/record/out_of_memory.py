"""What torch's error says of a device that has run out of memory, and which line of the program asked for it."""

import re
import traceback
from typing import Final

from perfkit.base.formatting import size, text_of
from perfkit.python_functions import callers

_UNITS: Final = {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_SIZE: Final = r"(\d{1,15}(?:\.\d{1,9})?) (bytes|KiB|MiB|GiB)"
_ASKED: Final = re.compile(rf"Tried to allocate {_SIZE}")
_FREE: Final = re.compile(rf"of which {_SIZE} is free")
"""As `CUDACachingAllocator.cpp` of torch 2.1 to 2.13 writes them; that of XPU alike."""


def describe_out_of_memory(error: BaseException) -> str | None:
    """Return an out-of-memory error of a device in short: line, size asked for, what was free; None for another."""
    if type(error).__name__ != "OutOfMemoryError":  # of torch, which who prints this may not have imported
        return None
    text = text_of(error)
    asked, free = (_bytes(pattern.search(text)) for pattern in (_ASKED, _FREE))
    if asked is None:
        return None
    left = "" if free is None else f", {size(free)} free"
    return f"out of memory{_place(error)}: asked for {size(asked)}{left}"


def _bytes(match: "re.Match[str] | None") -> int | None:
    return None if match is None else round(float(match[1]) * _UNITS[match[2]])


def _place(error: BaseException) -> str:
    """Return where the program was, innermost first: torch's frames and perfkit's are left out if there are others."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    where = callers([f"{frame.filename}({frame.lineno}): {frame.name}" for frame in frames], 1)
    return f" at {where[0]}" if where else ""
