"""Read files that may be anything: a pipe would block for ever, a device may never end, and a file may be enormous."""

import errno
import os
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any, Final

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
        path: The file.
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


def read_toml(path: Path | str) -> dict[str, Any]:
    """Return the content of a regular TOML file that a user wrote.

    Raises:
        OSError: As for `read_regular`.
        ValueError: It is not TOML, not UTF-8, nested too deeply, or has a number that is too long.
    """
    text = read_regular(path, most_bytes=_MOST_BY_HAND).decode("utf-8")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
