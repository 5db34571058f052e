"""Content-addressed cache of trace summaries.

::

    <cache folder>/<key>.result      a result: its checksum, then the bytes
                   <name>.seen       stat of a file when it was last read (see `FileStat`)

A key is a digest of the content of a file, the code that analyses it, its plug-ins and options, so a copy of a trace
hits the cache and an edited one does not. Of a large file the stat stands for the content: a copy of it, or one that
was touched, is read again. Missing, outdated or damaged entries are rewritten; the folder can be deleted at any time.
Where it is, and why it can be trusted, is in `cache_folder`.
"""

import hashlib
import os
import time
from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from perfkit._version import __version__
from perfkit.accelerators import accelerators
from perfkit.base.regular_file import open_regular
from perfkit.plugins import installed
from perfkit.storage import cache_folder
from perfkit.trace.nsys.paths import on_disk, split_path

_RACY_NS: Final = 2_000_000_000
"""A file that changed this recently may change again without a change of its times (git's "racy" problem)."""

_MOST_HASHED_BYTES: Final = 64 << 20
"""Hashing this much takes 0.1 s; a larger file would be read twice, a sparse one for minutes before it is refused."""

_DIGEST_BYTES: Final = 16
_RESULT, _STAT = ".result", ".seen"
_ANALYSIS_CODE: Final = (
    *("trace", "engine", "subjects", "records", "base", "phases.py", "python_functions.py", "accelerators.py"),
    *("pipeline/summarize.py", "pipeline/subject_parts.py"),
)
"""The parts of perfkit that determine a result."""


class FileStat(Struct, frozen=True, array_like=True):
    """A file's stat, and the digest of its content at that time.

    Content cannot change without changing `ctime_ns`, which no program can set: if the stat is unchanged, the file need
    not be read to know its digest. Inodes count per device: another file may have this one's on a disk mounted in its
    place.
    """

    bytes: int
    mtime_ns: int
    ctime_ns: int
    device: int
    inode: int
    content: str


class Fingerprint(Struct, frozen=True):
    """A file's path, with the digest of its content and its stat when it was read."""

    path: str
    stat: FileStat


def known_fingerprint(path: Path) -> Fingerprint | None:
    """Return the fingerprint of a file that has not changed since it was last read, without reading it."""
    try:
        status = on_disk(path).stat()
    except OSError:
        return None
    if status.st_size > _MOST_HASHED_BYTES:
        return _large_fingerprint(path, status)
    stored = _read_stat(_name_key(path) + _STAT)
    if stored and stored == _file_stat(status, stored.content):
        return Fingerprint(str(path), stored)
    return None


def fingerprint(path: Path) -> Fingerprint | None:
    """Return the fingerprint of a file; None if it is not a regular file, cannot be read, or is large and new."""
    file, _ = split_path(path)
    try:
        with open_regular(file) as stream:
            status = os.fstat(stream.fileno())
            if status.st_size > _MOST_HASHED_BYTES:
                return _large_fingerprint(path, status)
            content = hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=_DIGEST_BYTES)).hexdigest()
    except OSError:
        return None
    return Fingerprint(str(path), _file_stat(status, _of_process(path, content)))


def _large_fingerprint(path: Path, status: os.stat_result) -> Fingerprint | None:
    """Return a fingerprint without reading the file; None if its stat does not prove that its content is the same.

    Some file systems have neither inodes nor times of change.
    """
    current = _file_stat(status, "")
    if _is_racy(current) or not (current.inode and current.ctime_ns):
        return None
    return Fingerprint(str(path), _file_stat(status, _of_process(path, _digest(msgspec.msgpack.encode(current)).hex())))


def _of_process(path: Path, content: str) -> str:
    """Return the key of a file's content, or of one process in it."""
    process = split_path(path)[1]
    return content if process is None else f"{content}@{process}"


def load(file: Fingerprint, options: bytes) -> bytes | None:
    """Return the intact result for a content and options, or None."""
    key = _key(file.stat.content, options)
    data = cache_folder.read(key + _RESULT)
    if data is None:
        return None
    result = data[_DIGEST_BYTES:]
    return result if data[:_DIGEST_BYTES] == _checksum(key, result) else None


def store(file: Fingerprint, options: bytes, result: bytes) -> None:
    """Store a result; without a usable folder, nothing is stored and nothing fails."""
    key = _key(file.stat.content, options)
    cache_folder.write(key + _RESULT, _checksum(key, result) + result)


def store_stat(file: Fingerprint) -> None:
    """Store a file's stat, so that it need not be read next time; not if the file changed just before."""
    current = file.stat
    if current.bytes <= _MOST_HASHED_BYTES and not _is_racy(current):
        cache_folder.write(_name_key(Path(file.path)) + _STAT, msgspec.msgpack.encode(current))


def unchanged(file: Fingerprint) -> bool:
    """Return whether a file still matches its fingerprint."""
    try:
        return file.stat == _file_stat(on_disk(Path(file.path)).stat(), file.stat.content)
    except OSError:
        return False


def prune() -> None:
    """Delete the entries beyond the cache's size limit that were not used for longest."""
    cache_folder.prune((_RESULT, _STAT))


# ---- keys ----------------------------------------------------------------------------------------------------------


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
    rows = repr(accelerators()), repr(installed("perfkit.subjects"))
    return _digest(__version__.encode(), *(row.encode() for row in rows), *code)


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        digest.update(len(part).to_bytes(8) + part)
    return digest.digest()


def _checksum(key: str, result: bytes) -> bytes:
    return _digest(key.encode(), result)


def _file_stat(status: os.stat_result, content: str) -> FileStat:
    return FileStat(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_dev, status.st_ino, content)


def _is_racy(found: FileStat) -> bool:
    return max(found.mtime_ns, found.ctime_ns) >= time.time_ns() - _RACY_NS


def _read_stat(name: str) -> FileStat | None:
    data = cache_folder.read(name)
    try:
        return None if data is None else msgspec.msgpack.decode(data, type=FileStat)
    except msgspec.DecodeError:
        return None
