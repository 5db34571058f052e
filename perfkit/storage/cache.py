"""Results kept between analyses, by what they were made of.

::

    <folder of the trace>/.perfkit-cache/<key>.result      a result: its checksum, then the bytes
                                         <name>.seen       what a file was when it was last read (see `FileStat`)

A key stands for the content of a file, the code that analyses it and its options, so a copy of a trace is known and an
edited one is not. Everything is rewritten where it is missing, old or damaged; the folder can be deleted at any time.
Where the traces' folder cannot be written, the user's cache folder takes its place; `PERFKIT_CACHE_DIR` names another.
"""

import hashlib
import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from perfkit._version import __version__
from perfkit.errors import StoreError
from perfkit.util.atomic_write import atomic_write

FOLDER: Final = ".perfkit-cache"
FOLDER_VARIABLE: Final = "PERFKIT_CACHE_DIR"
LIMIT_BYTES: Final = 256_000_000
"""The oldest results beyond so many bytes are deleted."""

_RACY_NS: Final = 2_000_000_000
"""A file that changed so recently may change again without its times showing it (git's "racy" problem)."""

_DIGEST_BYTES: Final = 16
_TAG: Final = "Signature: 8a477f597d28d172789f06886806bc55"  # https://bford.info/cachedir/
_RESULT, _SEEN = ".result", ".seen"
_ANALYZER: Final = ("trace", "analysis", "schema", "util/formatting.py", "phases.py", "pipeline/summarize.py")
"""The code that decides what a result is."""


class FileStat(Struct, frozen=True, array_like=True):
    """What the operating system said of a file, and the digest of its content then.

    Content cannot change without changing `ctime_ns`, which no program can set: where all of it is as it was, the file
    need not be read to know its digest.
    """

    bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    content: str


class Fingerprint(Struct, frozen=True):
    """A file's content, and what the operating system said when it was read."""

    path: str
    stat: FileStat


def known_fingerprint(path: Path) -> Fingerprint | None:
    """Return the fingerprint of a file that has not changed since it was last read, without reading it."""
    try:
        status = path.stat()
    except OSError:
        return None
    for folder in _folders(path):
        seen = _read_stat(folder / (_name_key(path) + _SEEN))
        if seen and seen == _file_stat(status, seen.content):
            return Fingerprint(str(path), seen)
    return None


def fingerprint(path: Path) -> Fingerprint | None:
    """Return the fingerprint of a file; None for what is no regular file, or cannot be read."""
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            content = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES)).hexdigest()
    except OSError:
        return None
    return Fingerprint(str(path), _file_stat(status, content))


def load(print_: Fingerprint, options: bytes) -> bytes | None:
    """Return the result for a content and options; None where there is none that is whole."""
    key = _key(print_.stat.content, options)
    for folder in _folders(Path(print_.path)):
        with suppress(OSError):
            data = (folder / (key + _RESULT)).read_bytes()
            result = data[_DIGEST_BYTES:]
            if data[:_DIGEST_BYTES] == _checksum(key, result):
                return result
    return None


def store(print_: Fingerprint, options: bytes, result: bytes) -> None:
    """Keep a result, in the first folder that can be written; an analysis never fails because none can."""
    key = _key(print_.stat.content, options)
    _write(print_, key + _RESULT, _checksum(key, result) + result)


def store_stat(print_: Fingerprint) -> None:
    """Keep what a file looked like when it was read, so that next time it need not be; not where it is too fresh."""
    seen = print_.stat
    if max(seen.mtime_ns, seen.ctime_ns) < time.time_ns() - _RACY_NS:
        _write(print_, _name_key(Path(print_.path)) + _SEEN, msgspec.msgpack.encode(seen))


def unchanged(print_: Fingerprint) -> bool:
    """Tell whether a file is still what its fingerprint says."""
    try:
        return print_.stat == _file_stat(Path(print_.path).stat(), print_.stat.content)
    except OSError:
        return False


def prune(traces: Iterable[Path]) -> None:
    """Delete the oldest results beyond `LIMIT_BYTES` in the folders that serve `traces`."""
    for folder in {folder for parent in {path.parent for path in traces} for folder in _folders(parent / "trace")}:
        with suppress(OSError):
            _prune(folder)


def _prune(folder: Path) -> None:
    with os.scandir(folder) as entries:
        files = [(entry.stat().st_mtime_ns, entry.stat().st_size, entry.path) for entry in entries]
    excess = sum(size for _, size, _ in files) - LIMIT_BYTES
    for _, size, path in sorted(files):
        if excess <= 0:
            return
        if path.endswith((_RESULT, _SEEN)):
            Path(path).unlink(missing_ok=True)
            excess -= size


# ---- where and under which names -----------------------------------------------------------------------------------


def _folders(path: Path) -> list[Path]:
    """Return the folders for a trace's results, the preferred one first."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return [Path(named)]
    base = os.environ.get("XDG_CACHE_HOME")
    users = Path(base) if base and Path(base).is_absolute() else Path("~/.cache").expanduser()
    return [path.parent / FOLDER, users / "perfkit"]


def _key(content: str, options: bytes) -> str:
    return _digest(content.encode(), _analyzer(), options).hex()


def _name_key(path: Path) -> str:
    return _digest(os.fsencode(path.absolute())).hex()


@cache
def _analyzer() -> bytes:
    """Return a digest of the code that makes the results: whatever changes in it, old results are not found."""
    root = Path(__file__).parents[1]
    found = [part for name in _ANALYZER for part in ((root / name).rglob("*.py") if "." not in name else [root / name])]
    return _digest(__version__.encode(), *(file.name.encode() + b"\0" + file.read_bytes() for file in sorted(found)))


def _digest(*parts: bytes) -> bytes:
    made = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        made.update(len(part).to_bytes(8) + part)
    return made.digest()


def _checksum(key: str, result: bytes) -> bytes:
    return _digest(key.encode(), result)


def _file_stat(status: os.stat_result, content: str) -> FileStat:
    return FileStat(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, content)


def _read_stat(path: Path) -> FileStat | None:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=FileStat)
    except (OSError, msgspec.DecodeError):
        return None


def _write(print_: Fingerprint, name: str, data: bytes) -> None:
    for folder in _folders(Path(print_.path)):
        with suppress(OSError, StoreError):
            _prepare(folder)
            with atomic_write(folder / name) as temporary:
                temporary.write_bytes(data)
            return


def _prepare(folder: Path) -> None:
    """Make a cache folder that version control and backups pass over."""
    if folder.is_dir():
        return
    folder.mkdir(parents=folder.name != FOLDER, exist_ok=True)
    (folder / "CACHEDIR.TAG").write_text(f"{_TAG}\n# Made by perfkit; can be deleted.\n")
    (folder / ".gitignore").write_text("*\n")
