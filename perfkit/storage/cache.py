"""Content-addressed cache of trace summaries.

::

    <folder of the trace>/.perfkit-cache/<key>.result      a result: its checksum, then the bytes
                                         <name>.seen       stat of a file when it was last read (see `FileStat`)

A key is a digest of the content of a file, the code that analyses it, its plug-ins and options, so a copy of a trace
hits the cache and an edited one does not. Missing, outdated or damaged entries are rewritten; the folder can be deleted
at any time. If the traces' folder cannot be written, the user's cache folder is used; `PERFKIT_CACHE_DIR` overrides
both.
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
from perfkit.accelerators import accelerators
from perfkit.errors import StoreError
from perfkit.util.atomic_write import atomic_write

FOLDER: Final = ".perfkit-cache"
FOLDER_VARIABLE: Final = "PERFKIT_CACHE_DIR"
LIMIT_BYTES: Final = 256_000_000
"""The oldest results beyond this size are deleted."""

_RACY_NS: Final = 2_000_000_000
"""A file that changed this recently may change again without a change of its times (git's "racy" problem)."""

_DIGEST_BYTES: Final = 16
_TAG: Final = "Signature: 8a477f597d28d172789f06886806bc55"  # https://bford.info/cachedir/
_RESULT, _STAT = ".result", ".seen"
_ANALYSIS_CODE: Final = ("trace", "analysis", "schema", "util", "phases.py", "accelerators.py", "pipeline/summarize.py")
"""The parts of perfkit that determine a result."""


class FileStat(Struct, frozen=True, array_like=True):
    """A file's stat, and the digest of its content at that time.

    Content cannot change without changing `ctime_ns`, which no program can set: if the stat is unchanged, the file need
    not be read to know its digest.
    """

    bytes: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    content: str


class Fingerprint(Struct, frozen=True):
    """A file's path, with the digest of its content and its stat when it was read."""

    path: str
    stat: FileStat


def known_fingerprint(path: Path) -> Fingerprint | None:
    """Return the fingerprint of a file that has not changed since it was last read, without reading it."""
    try:
        status = path.stat()
    except OSError:
        return None
    for folder in _folders(path):
        stored = _read_stat(folder / (_name_key(path) + _STAT))
        if stored and stored == _file_stat(status, stored.content):
            return Fingerprint(str(path), stored)
    return None


def fingerprint(path: Path) -> Fingerprint | None:
    """Return the fingerprint of a file; None if it is not a regular file, or cannot be read."""
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                return None
            content = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES)).hexdigest()
    except OSError:
        return None
    return Fingerprint(str(path), _file_stat(status, content))


def load(file: Fingerprint, options: bytes) -> bytes | None:
    """Return the intact result for a content and options, or None."""
    key = _key(file.stat.content, options)
    for folder in _folders(Path(file.path)):
        with suppress(OSError):
            data = (folder / (key + _RESULT)).read_bytes()
            result = data[_DIGEST_BYTES:]
            if data[:_DIGEST_BYTES] == _checksum(key, result):
                return result
    return None


def store(file: Fingerprint, options: bytes, result: bytes) -> None:
    """Store a result in the first writable folder; without one, nothing is stored and nothing fails."""
    key = _key(file.stat.content, options)
    _write(file, key + _RESULT, _checksum(key, result) + result)


def store_stat(file: Fingerprint) -> None:
    """Store a file's stat, so that it need not be read next time; not if the file changed just before."""
    current = file.stat
    if max(current.mtime_ns, current.ctime_ns) < time.time_ns() - _RACY_NS:
        _write(file, _name_key(Path(file.path)) + _STAT, msgspec.msgpack.encode(current))


def unchanged(file: Fingerprint) -> bool:
    """Return whether a file still matches its fingerprint."""
    try:
        return file.stat == _file_stat(Path(file.path).stat(), file.stat.content)
    except OSError:
        return False


def prune(traces: Iterable[Path]) -> None:
    """Delete the oldest results beyond `LIMIT_BYTES` in the cache folders of `traces`."""
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
        if path.endswith((_RESULT, _STAT)):
            Path(path).unlink(missing_ok=True)
            excess -= size


# ---- folders and keys ----------------------------------------------------------------------------------------------


def _folders(path: Path) -> list[Path]:
    """Return the folders for a trace's results, the preferred one first."""
    if named := os.environ.get(FOLDER_VARIABLE):
        return [Path(named)]
    base = os.environ.get("XDG_CACHE_HOME")
    user_cache = Path(base) if base and Path(base).is_absolute() else Path("~/.cache").expanduser()
    return [path.parent / FOLDER, user_cache / "perfkit"]


def _key(content: str, options: bytes) -> str:
    return _digest(content.encode(), _analyzer(), options).hex()


def _name_key(path: Path) -> str:
    return _digest(os.fsencode(path.absolute())).hex()


@cache
def _analyzer() -> bytes:
    """Return a digest of the analysing code and the plug-ins: after any change, old results are not found."""
    root = Path(__file__).parents[1]
    files = sorted(
        file for name in _ANALYSIS_CODE for file in ([root / name] if "." in name else (root / name).rglob("*.py"))
    )
    code = (file.name.encode() + b"\0" + file.read_bytes() for file in files)
    # The rows themselves: a plug-in may change, or be one that could not be loaded last time.
    return _digest(__version__.encode(), repr(accelerators()).encode(), *code)


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return digest.digest()


def _checksum(key: str, result: bytes) -> bytes:
    return _digest(key.encode(), result)


def _file_stat(status: os.stat_result, content: str) -> FileStat:
    return FileStat(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, content)


def _read_stat(path: Path) -> FileStat | None:
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=FileStat)
    except (OSError, msgspec.DecodeError):
        return None


def _write(file: Fingerprint, name: str, data: bytes) -> None:
    for folder in _folders(Path(file.path)):
        with suppress(OSError, StoreError):
            _prepare(folder)
            with atomic_write(folder / name) as temporary:
                temporary.write_bytes(data)
            return


def _prepare(folder: Path) -> None:
    """Create a cache folder that version control and backups ignore."""
    if folder.is_dir():
        return
    folder.mkdir(parents=folder.name != FOLDER, exist_ok=True)
    (folder / "CACHEDIR.TAG").write_text(f"{_TAG}\n# Created by perfkit; can be deleted.\n")
    (folder / ".gitignore").write_text("*\n")
