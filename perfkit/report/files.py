"""Writing a report to a file so that nobody ever sees half of one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from perfkit.errors import StoreError


@contextmanager
def replacing(path: Path) -> Iterator[TextIO]:
    """Open `path` for UTF-8 text; the file appears, or is replaced, only if the block ends well.

    What is not a regular file (a pipe, `/dev/stdout`) is written to directly.

    Raises:
        StoreError: the file cannot be written.
    """
    try:
        with _direct(path) if _is_special(path) else _renamed(path.resolve()) as stream:
            yield stream
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


@contextmanager
def _direct(path: Path) -> Iterator[TextIO]:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream:
        yield stream


@contextmanager
def _renamed(path: Path) -> Iterator[TextIO]:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with _direct(temporary) as stream:
            yield stream
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
