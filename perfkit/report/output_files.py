"""Opens output files, and replaces existing ones atomically."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TextIO

from perfkit.errors import StoreError
from perfkit.util.atomic_write import atomic_write


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """Open `path` for UTF-8 text; the file is created or replaced only if the block succeeds.

    Missing folders are created. Pipes and devices (such as `/dev/stdout`) are written to directly.

    Raises:
        StoreError: the file cannot be written.
    """
    with (
        _target(path) as target,
        target.open("w", encoding="utf-8", errors="backslashreplace", newline="") as stream,
    ):
        yield stream


@contextmanager
def writing_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open `path` for bytes, like `writing`."""
    with _target(path) as target, target.open("wb") as stream:
        yield stream


@contextmanager
def _target(path: Path) -> Iterator[Path]:
    """Yield the path to open in place of `path`."""
    try:
        if path.exists() and not path.is_file():
            yield path
            return
        path.parent.mkdir(parents=True, exist_ok=True)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
    with atomic_write(path.resolve()) as temporary:
        yield temporary
