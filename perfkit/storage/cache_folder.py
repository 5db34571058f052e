"""The folder of the cache: the user's own, never one that came with traces.

What is in it is believed, so every entry must have been written by this user: the folder and each file must belong to
them, and nobody else may be able to write there. A folder that is not so is not used, and an entry that is not so is
not read.

============================  =====================================================
`PERFKIT_CACHE_DIR`           this folder
macOS                         `~/Library/Caches/perfkit`
elsewhere                     `$XDG_CACHE_HOME/perfkit`, else `~/.cache/perfkit`
============================  =====================================================
"""

import logging
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

from perfkit.base.atomic_write import TEMPORARY_SUFFIX, new_file
from perfkit.base.regular_file import open_regular

FOLDER_VARIABLE: Final = "PERFKIT_CACHE_DIR"
LIMIT_BYTES: Final = 256_000_000
"""The entries that were not used for longest, beyond this size, are deleted."""

_LOG: Final = logging.getLogger(__name__)
_TAG_NAME: Final = "CACHEDIR.TAG"
_TAG: Final = b"Signature: 8a477f597d28d172789f06886806bc55\n# Created by perfkit; can be deleted.\n"
"""Keeps the folder out of backups: https://bford.info/cachedir/"""
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_ABANDONED_NS: Final = 3600 * 10**9
"""A temporary file as old as this was left by a process that was killed."""


def read(name: str) -> bytes | None:
    """Return an entry, and note that it was used; None if there is none that this user has written."""
    with suppress(OSError), _opened(create=False) as folder, open_regular(name, follow=False, folder=folder) as file:
        status = os.fstat(file.fileno())
        if _is_own(status) and status.st_size <= LIMIT_BYTES:
            with suppress(OSError):
                os.utime(file.fileno())
            return file.read()
    return None


def write(name: str, data: bytes) -> None:
    """Create or replace an entry; without a usable folder nothing is stored and nothing fails."""
    with suppress(OSError), _opened(create=True) as folder, new_file(folder, name, _FILE_MODE) as file:
        file.write(data)


def prune(suffixes: tuple[str, ...]) -> None:
    """Delete, beyond `LIMIT_BYTES`, the entries with these suffixes that were not used for longest."""
    with suppress(OSError), _opened(create=False) as folder:
        with os.scandir(folder) as found:
            entries = [(entry.name, entry.stat(follow_symlinks=False)) for entry in found]
        excess = sum(status.st_size for _, status in entries) - LIMIT_BYTES
        for name, status in sorted(entries, key=lambda entry: entry[1].st_mtime_ns):
            is_abandoned = name.endswith(TEMPORARY_SUFFIX) and status.st_mtime_ns < time.time_ns() - _ABANDONED_NS
            if is_abandoned or (excess > 0 and name.endswith(suffixes)):
                os.unlink(name, dir_fd=folder)
                excess -= status.st_size


def location() -> Path | None:
    """Return where the folder is or would be; None if this user has no home."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named)
    try:
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Caches" / "perfkit"
        base = os.environ.get("XDG_CACHE_HOME")
        return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "perfkit"
    except RuntimeError:
        return None


@contextmanager
def _opened(*, create: bool) -> Iterator[int]:
    """Yield a descriptor of the folder.

    Raises:
        OSError: There is no usable one; the reason is logged.
    """
    try:
        descriptor = _open(location(), create)
    except FileNotFoundError:
        if create:
            _log_once("nothing is cached: no folder can be created")
        raise
    except OSError as error:
        _log_once(f"nothing is cached: {error.filename or 'its folder'}: {error.strerror}")
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path | None, create: bool) -> int:
    if path is None:
        raise FileNotFoundError(0, "there is no home", None)
    made = create and not path.is_dir() and _make(path)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not _is_own(os.fstat(descriptor)):
            raise PermissionError(0, "it belongs to another user, or others can write to it", str(path))
        if made:
            with suppress(OSError), new_file(descriptor, _TAG_NAME, _FILE_MODE) as file:
                file.write(_TAG)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _make(path: Path) -> bool:
    above = next(folder for folder in path.absolute().parents if folder.exists())
    if os.geteuid() == 0 and above.stat().st_uid != 0:  # as with sudo: the user could not use it later
        raise PermissionError(0, "it would belong to root", str(path))
    path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    return True


def _is_own(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid() and not status.st_mode & _OTHERS_WRITE


@cache
def _log_once(text: str) -> None:
    _LOG.info("%s", text)
