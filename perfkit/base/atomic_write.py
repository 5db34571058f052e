"""Write files atomically, and never through a link: readers see no partial file, and no other file is touched.

A folder may come from somebody else, or others may write into it. So a temporary file has a random name and must not
exist, it is created and renamed relative to a descriptor of the folder, and a link at the file's name is replaced, not
followed.

A process that is killed, or ends by `os._exit`, leaves what it put into the system's temporary folder. Each name there
has the process and where it runs, so that others can remove it: a process of another container that shares the folder
is not taken for one that has ended.
"""

import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Final

from perfkit.errors import StoreError

TEMPORARY_SUFFIX: Final = ".tmp"
"""Ends the names of temporary files and folders: `.<name>.<random>.tmp`."""

_NAME_LENGTH: Final = 48
"""So much of a file's name is in the temporary one: names have at most 255 bytes, and a character at most four."""
_DIRECTORY: Final = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_NEW_FILE: Final = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def atomic_write(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Yield a new file, open for writing and reading; at the end it gets the name `path`, after an error it is removed.

    Args:
        path: The file to create or replace; its folder must exist. A replaced file's permissions are kept.
        mode: Permissions of a new file, before the umask.

    Raises:
        StoreError: The file cannot be written.
    """
    try:
        with open_folder(path.parent) as folder, new_file(folder, path.name, mode) as stream:
            yield stream
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def private_folder(target: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `target` that only this user can access: for libraries that write to a path.

    Raises:
        OSError: It cannot be created.
    """
    begin, suffix = _begin(target.name), TEMPORARY_SUFFIX
    with TemporaryDirectory(prefix=begin, suffix=suffix, dir=target.parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def open_folder(path: Path) -> Iterator[int]:
    """Yield a descriptor of a folder, for the `dir_fd` of functions in `os`: it stays that folder, whatever is renamed.

    Raises:
        OSError: It does not exist, or is no folder.
    """
    descriptor = os.open(path, _DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def new_file(folder: int, name: str, mode: int) -> Iterator[BinaryIO]:
    """Yield a new file like `atomic_write`, in the folder of a descriptor.

    Raises:
        OSError: The file cannot be written.
    """
    temporary = f"{_begin(name)}{secrets.token_hex(16)}{TEMPORARY_SUFFIX}"
    descriptor = os.open(temporary, _NEW_FILE, mode, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "w+b") as stream:
            with suppress(OSError):  # there is none, or the file system has no permissions
                replaced = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(replaced.st_mode) and replaced.st_uid == os.geteuid():
                    os.fchmod(stream.fileno(), stat.S_IMODE(replaced.st_mode) & 0o777)
            yield stream
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _begin(name: str) -> str:
    return f".{name[:_NAME_LENGTH]}."


def temporary_prefix(kind: str) -> str:
    """Return the beginning of the names of this process, and remove what ended processes of the same user have left.

    Args:
        kind: What the names are for, such as `perfkit-loader`: the same for all processes.
    """
    place = _place()
    if place:
        names = re.compile(rf"{re.escape(kind)}-{place}-([0-9]{{1,10}})-[^/]*")
        with suppress(OSError), os.scandir(tempfile.gettempdir()) as entries:
            for entry in entries:
                match = names.fullmatch(entry.name)
                if match and _has_ended(int(match[1])):
                    _remove_own(entry.path)
    return f"{kind}-{place}-{os.getpid()}-"


def _place() -> str:
    """Return what tells apart the sets of processes in which a pid is unique; empty if that is unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").replace("-", "")[:16]
        return f"{boot}.{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # a name that anybody may have made has any number
        return False
    return False


def _remove_own(path: str) -> None:
    """Remove a file or folder of this user; a link is not followed."""
    with suppress(OSError):
        status = os.lstat(path)
        if status.st_uid != os.geteuid():
            return
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(path, ignore_errors=True)
        elif stat.S_ISREG(status.st_mode):
            os.unlink(path)
