"""Splits a file into lines of NCCL's log, in bounded memory, whatever else the file contains.

The format is that of NCCL's src/debug.cc, which RCCL shares: `host:pid:tid [device] NCCL INFO text`, and
`host:pid:tid [device] file.cc:123 NCCL WARN text`. A launcher or a timestamp may have put something before it.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from io import BufferedReader
from typing import Final, Literal, NamedTuple

LONGEST_LINE: Final = 16_384
"""Bytes of a line that are read; the rest is skipped."""
_PIECE: Final = 1 << 16
_MARKER: Final = re.compile(rb"NCCL (INFO|WARN) ")
_ANSI: Final = re.compile(rb"\x1b\[[0-9;]{0,16}[A-Za-z]")
_HOST: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}")
_DEVICE: Final = re.compile(r"\[(\d{1,5})\]")
_MOST_HEAD: Final = 512
"""Bytes before the marker that may contain the origin of a line."""
_MOST_HEAD_WORDS: Final = 4
"""Words between the marker and the origin: device, place in the source and function."""


class Process(NamedTuple):
    """A process, which usually is one rank."""

    host: str
    id: int


class LogLine(NamedTuple):
    """A line that NCCL wrote."""

    level: Literal["INFO", "WARN"]
    process: Process | None
    """None if the line does not begin as NCCL writes it."""
    thread: int
    source: str
    """Place in NCCL's source that warns, `misc/socket.cc:483`; else empty."""
    text: str


def read_lines(stream: BufferedReader) -> Iterator[bytes]:
    """Yield lines without their ends, escape sequences of terminals, and what a carriage return overwrites."""
    while piece := stream.readline(LONGEST_LINE):
        line = piece.rstrip(b"\r\n")
        while piece and not piece.endswith(b"\n"):
            piece = stream.readline(_PIECE)
        if b"\x1b" in line:
            line = _ANSI.sub(b"", line)
        yield line.rpartition(b"\r")[2] if b"\r" in line else line


def is_garbled(line: bytes) -> bool:
    """Return whether two processes wrote into the same line, so that neither can be trusted."""
    return line.count(b"NCCL INFO ") + line.count(b"NCCL WARN ") > 1


def parse_line(line: bytes) -> LogLine | None:
    """Return a line that NCCL wrote; None if it did not."""
    marker = _MARKER.search(line)
    if marker is None:
        return None
    process, thread, source = _origin(line[max(marker.start() - _MOST_HEAD, 0) : marker.start()])
    text = line[marker.end() :].decode("utf-8", "replace").strip()
    return LogLine("WARN" if marker[1] == b"WARN" else "INFO", process, thread, source, text)


@lru_cache(4096)  # one per thread, in a log of millions of lines
def _origin(head: bytes) -> tuple[Process | None, int, str]:
    """Return process, thread and place in the source from what is before the marker."""
    words = head.decode("utf-8", "replace").split()
    for back in range(1, min(len(words), _MOST_HEAD_WORDS)):
        if _DEVICE.fullmatch(words[-back]):
            parts = words[-back - 1].rsplit(":", 3)[-3:]
            source = words[1 - back] if back > 1 else ""
            if len(parts) == 3 and _HOST.fullmatch(parts[0]) and _is_number(parts[1]) and _is_number(parts[2]):
                return Process(parts[0], int(parts[1])), int(parts[2]), source
            return None, 0, source
    return None, 0, ""


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 12
