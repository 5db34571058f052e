"""Opens output files: existing ones are replaced atomically, pipes, devices and open descriptors are written to.

Paths that perfkit itself chooses are checked first: see `refuse_links`.
"""

import io
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, TextIO

from perfkit.base.atomic_write import atomic_write
from perfkit.errors import StoreError

_DESCRIPTOR: Final = re.compile(r"/dev/(?:fd/(?P<dev>\d+)|(?P<name>stdout|stderr))|/proc/self/fd/(?P<proc>\d+)")


def refuse_links(*paths: Path, instead: str) -> None:
    """Refuse paths that the user has not chosen, if a foreign folder leads them elsewhere.

    Args:
        paths: Files and folders, which may not exist yet.
        instead: What the user can do.

    Raises:
        StoreError: One is a link, a pipe or a device.
    """
    for path in paths:
        try:
            leads_elsewhere = path.is_symlink() or (path.exists() and not (path.is_dir() or path.is_file()))
        except OSError as error:  # a name that is too long
            raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
        if leads_elsewhere:
            raise StoreError(f"{path} is a link or a device: {instead}")


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """Open `path` for UTF-8 text, like `writing_bytes`."""
    with writing_bytes(path) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="backslashreplace", newline="")
        try:
            yield text
        finally:
            text.detach()  # writes what is left; only `writing_bytes` may close the file


@contextmanager
def writing_bytes(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open `path` for bytes; the file is created or replaced only if the block succeeds.

    Missing folders are created. A link is replaced, never followed. Pipes, devices and open descriptors (such as
    `/dev/stdout`) are written to directly.

    Args:
        path: The file.
        mode: Permissions of a new file, before the umask.

    Raises:
        StoreError: The file cannot be written.
    """
    try:
        descriptor = _open_directly(path)
        if descriptor is not None:
            with os.fdopen(descriptor, "wb") as stream:
                yield stream
            return
        path.parent.mkdir(parents=True, exist_ok=True)
    except BrokenPipeError:  # the reader has seen enough
        raise
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
    with atomic_write(path, mode=mode) as stream:
        yield stream


def _open_directly(path: Path) -> int | None:
    """Return a descriptor of what cannot be replaced by a file; None if `path` is a file, a link, or does not exist."""
    if match := _DESCRIPTOR.fullmatch(os.path.abspath(path)):
        number = match["dev"] or match["proc"] or {"stdout": 1, "stderr": 2}[match["name"]]
        return os.dup(int(number))
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISREG(mode) or stat.S_ISLNK(mode):
        return None
    return os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
