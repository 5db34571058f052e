"""Read files that may be anything: a pipe would block for ever, a device may never end, and a file may be enormous."""

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final

from perfkit.errors import UsageError

MOST_BYTES: Final = 1 << 30
"""Default limit of what is read into memory."""
_MOST_BY_HAND: Final = 4 << 20
"""The same, of what people write by hand."""
_PIECE_BYTES: Final = 1 << 20
_MOST_HOLE_BYTES: Final = 1 << 20
"""Limit of what holes may add to it."""


@contextmanager
def open_regular(path: Path | str, *, follow: bool = True, folder: int | None = None) -> Iterator[BufferedReader]:
    """Open a regular file for reading, without waiting.

    Args:
        follow: Whether it may be a link.
        folder: Descriptor of the folder that a relative `path` is in; None for the working directory.

    Raises:
        OSError: It cannot be opened, or is not a regular file.
    """
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        stream = os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
    with stream:
        yield stream


def read_regular(path: Path | str, *, most_bytes: int = MOST_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: It cannot be read, is not a regular file, is larger than `most_bytes`, or is large by its holes.
    """
    with open_regular(path) as stream:
        size = os.fstat(stream.fileno()).st_size
        if size <= most_bytes and hole_bytes(stream.fileno()) > _MOST_HOLE_BYTES:
            raise OSError(errno.EINVAL, "it is a sparse file, parts of it were never written", str(path))
        # Not all that it may have: room for that much would be asked for at once.
        data = b"" if size > most_bytes else stream.read(size + 1)
        while size < len(data) <= most_bytes and (more := stream.read(_PIECE_BYTES)):  # it grows
            data += more
    if max(size, len(data)) > most_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {most_bytes:,} bytes", str(path))
    return data


def hole_bytes(descriptor: int) -> int:
    """Return how many bytes of an open file lie beyond the beginning of its first hole, which takes no space on a disk.

    0 if it has no hole, is not a file, or its file system does not tell.
    """
    try:
        size, hole = os.fstat(descriptor).st_size, os.lseek(descriptor, 0, os.SEEK_HOLE)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except (OSError, AttributeError):  # AttributeError: the system has no such call
        return 0
    return size - hole


def read_toml(path: Path | str, option: str) -> dict[str, Any]:
    """Return the content of a regular TOML file that a user wrote and gave with an option.

    Raises:
        UsageError: It cannot be read as by `read_regular`, is not TOML or UTF-8, or has a number that is too long.
    """
    import tomllib

    try:
        return tomllib.loads(read_regular(path, most_bytes=_MOST_BY_HAND).decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise UsageError(f"{option} {path}: not valid TOML: {reason}") from error


_WRITER_S: Final = 10.0
"""How long the process that writes into a pipe may take to open it: a shell has begun it at about the same time."""


def open_file(path: Path) -> BufferedReader:
    """Open a file for reading; if it is a pipe, without waiting for ever for a process that writes into it.

    Raises:
        OSError: It cannot be opened, or is a pipe that no process has opened for writing.
    """
    if not path.is_fifo():
        return path.open("rb")
    found: SimpleQueue[BufferedReader | OSError] = SimpleQueue()
    threading.Thread(target=_open_into, args=(path, found), daemon=True).start()  # which waits for the other end
    try:
        opened = found.get(timeout=_WRITER_S)
    except Empty:
        with suppress(OSError):  # lets the thread end
            os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        with suppress(Empty):
            if isinstance(late := found.get(timeout=1), BufferedReader):
                late.close()
        reason = f"it is a pipe, and no process has opened it for writing within {_WRITER_S:g} s"
        raise OSError(errno.ETIMEDOUT, reason) from None
    if isinstance(opened, OSError):
        raise opened
    return opened


def _open_into(path: Path, found: "SimpleQueue[BufferedReader | OSError]") -> None:
    try:
        found.put(path.open("rb"))
    except OSError as error:
        found.put(error)
