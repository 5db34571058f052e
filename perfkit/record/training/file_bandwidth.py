"""Measures how fast the samples' file can be read at all, as a reference for the data loading of a run.

This happens after the last step, because it brings the file into the page cache, which would change what the run
measures. The result includes the share of the file that was cached before; pages that were not are dropped again, so
that a repeated run finds the file as if it had not been measured. Nothing is dropped of another user's file, for which
the kernel does not report cached pages.
"""

import ctypes
import mmap
import os
import time
from contextlib import suppress
from io import FileIO
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit.records.manifest import FileBandwidth

BLOCK_BYTES: Final = 8 << 20
MOST_BYTES: Final = 256 << 20
MOST_NS: Final = 1_000_000_000
"""Reading ends at the first of both limits; a block that has begun is completed."""

_LEAST_DROPPED_BYTES: Final = 1 << 20
"""Shorter runs of pages are not dropped: each costs a system call."""

_PASSES: Final = 5
_DISPLACED_BYTES: Final = 64 << 20
"""Written between two passes, to displace the file from the CPU's cache, where no step would find it either."""

Pages = NDArray[np.bool_]


class _Pass(NamedTuple):
    """One pass over a file, or over its beginning."""

    read_bytes: int
    wall_ns: int

    @property
    def ns_per_byte(self) -> float:
        return self.wall_ns / max(1, self.read_bytes)


def measure_file_bandwidth(path: Path, most_ns: int = MOST_NS) -> FileBandwidth | None:
    """Read the beginning of a file in large blocks, and return the bandwidth; None for an empty file.

    A file that is completely in the page cache is read several times, and the median is returned: a short file takes
    less time to read than a time slice of the scheduler.

    Raises:
        OSError: The file cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        size = min(os.fstat(file.fileno()).st_size, MOST_BYTES)
        cached = cached_pages(path, file.fileno(), size)
        buffer = memoryview(bytearray(BLOCK_BYTES))
        passes = [_read(file, size, buffer, most_ns)]
        if cached is not None and cached.all():
            other_memory = np.empty(_DISPLACED_BYTES, np.uint8)
            while len(passes) < _PASSES and sum(one.wall_ns for one in passes) < most_ns:
                other_memory.fill(len(passes))
                passes.append(_read(file, size, buffer, most_ns // _PASSES))
        read, wall_ns = sorted(passes, key=attrgetter("ns_per_byte"))[len(passes) // 2]
        if cached is not None:
            cached = cached[: -(-read // mmap.PAGESIZE)]
            _drop(file.fileno(), ~cached)
    if not read:
        return None
    return FileBandwidth(
        bytes_per_s=read * 1e9 / wall_ns,
        read_bytes=read,
        wall_ns=wall_ns,
        cached_share=None if cached is None else float(cached.mean()),
    )


MOSTLY_CACHED: Final = 0.9
"""Share of a file in the page cache from which it is in it; below the rest it is not."""


def is_cached(path: Path) -> bool | None:
    """Return whether a file is in the page cache; None if that is unknown, or only a part of it is, or it is large.

    Raises:
        OSError: The file cannot be opened.
    """
    with path.open("rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        pages = cached_pages(path, file.fileno(), size) if size <= MOST_BYTES else None
    if pages is None or 1 - MOSTLY_CACHED < pages.mean() < MOSTLY_CACHED:
        return None
    return bool(pages.mean() >= MOSTLY_CACHED)


def _read(file: FileIO, size: int, buffer: memoryview, most_ns: int) -> _Pass:
    """Read `size` bytes from the beginning; stop at the end of the file, or after the block that exceeds the time."""
    file.seek(0)
    done, end_ns = 0, (begin_ns := time.perf_counter_ns())
    while count := file.readinto(buffer[: size - done]):
        done += count
        end_ns = time.perf_counter_ns()
        if end_ns - begin_ns >= most_ns:
            break
    return _Pass(done, max(1, end_ns - begin_ns))


def cached_pages(path: Path, descriptor: int, size: int) -> Pages | None:
    """Return for each page of the first `size` bytes of an open file whether it is in the page cache.

    None if the system does not report it. Linux reports it only to users who may write the file; for others all pages
    appear cached.
    """
    effective = os.access in os.supports_effective_ids
    is_reported = os.geteuid() == os.fstat(descriptor).st_uid or os.access(path, os.W_OK, effective_ids=effective)
    mincore = getattr(ctypes.CDLL(None), "mincore", None)
    if not size or not is_reported or mincore is None:
        return None
    states = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
    try:
        # Private and writable: ctypes cannot take the address of read-only memory.
        with mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE) as mapping:
            first = ctypes.c_char.from_buffer(mapping)
            address, vector = ctypes.c_void_p(ctypes.addressof(first)), states.ctypes.data_as(ctypes.c_void_p)
            failed = mincore(address, ctypes.c_size_t(size), vector)
            del first  # a mapping with an exported buffer cannot be closed
    except (OSError, ValueError):  # a file system without mmap; a file that has been truncated
        return None
    return None if failed else (states & 1).astype(np.bool_)


def _drop(descriptor: int, pages: Pages) -> None:
    """Drop pages from the page cache, in contiguous runs; does nothing if the system does not support it."""
    if not hasattr(os, "posix_fadvise"):
        return
    edges = np.flatnonzero(np.diff(np.concatenate(([False], pages, [False])).astype(np.int8)))
    for start, stop in (edges.reshape(-1, 2) * mmap.PAGESIZE).tolist():
        if stop - start >= _LEAST_DROPPED_BYTES:
            with suppress(OSError):
                os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_DONTNEED)
