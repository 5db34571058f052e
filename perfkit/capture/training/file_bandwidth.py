"""How fast the file of the samples can be read at all: what the loading of them is measured against.

After the last step, for reading a file brings it into the page cache: before the first step that would change what the
run measures. How much of it the run has left in the cache is part of the record; what was not there is dropped again,
so that a repeat finds the file as if nobody had measured; of a file of another user, whose pages the kernel does not
tell of, nothing is dropped.
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

from perfkit.schema.manifest import FileBandwidth

BLOCK_BYTES: Final = 8 << 20
MOST_BYTES: Final = 256 << 20
MOST_NS: Final = 1_000_000_000
"""What is read ends at the first of both, but for the block that is under way."""

_LEAST_DROPPED_BYTES: Final = 1 << 20
"""Shorter gaps in what is cached stay filled: each costs a system call."""

_PASSES: Final = 5
_DISPLACED_BYTES: Final = 64 << 20
"""Written between two passes, so that none finds the file in the processor's own cache, where no step would."""

Pages = NDArray[np.bool_]


class _Pass(NamedTuple):
    """One reading of a file, or of its beginning."""

    read_bytes: int
    wall_ns: int

    @property
    def ns_a_byte(self) -> float:
        """How slow it was."""
        return self.wall_ns / max(1, self.read_bytes)


def measure_file_bandwidth(path: Path, most_ns: int = MOST_NS) -> FileBandwidth | None:
    """Read the beginning of a file, one large block after the other; None of an empty one.

    What lies in the page cache whole is read several times, and the median counts: a short file takes less time than
    the scheduler does.

    Raises:
        OSError: It cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        size = min(os.fstat(file.fileno()).st_size, MOST_BYTES)
        cached = cached_pages(path, file.fileno(), size)
        buffer = memoryview(bytearray(BLOCK_BYTES))
        passes = [_read(file, size, buffer, most_ns)]
        if cached is not None and cached.all():
            elsewhere = np.empty(_DISPLACED_BYTES, np.uint8)
            while len(passes) < _PASSES and sum(one.wall_ns for one in passes) < most_ns:
                elsewhere.fill(len(passes))
                passes.append(_read(file, size, buffer, most_ns // _PASSES))
        read, wall_ns = sorted(passes, key=attrgetter("ns_a_byte"))[len(passes) // 2]
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


def _read(file: FileIO, size: int, buffer: memoryview, most_ns: int) -> _Pass:
    """Read `size` bytes from the beginning, or as many as there are and, after a first block, time allows."""
    file.seek(0)
    done, end_ns = 0, (begin_ns := time.perf_counter_ns())
    while count := file.readinto(buffer[: size - done]):
        done += count
        end_ns = time.perf_counter_ns()
        if end_ns - begin_ns >= most_ns:
            break
    return _Pass(done, max(1, end_ns - begin_ns))


def cached_pages(path: Path, descriptor: int, size: int) -> Pages | None:
    """Say of each page of the first `size` bytes of an open file whether it is in the page cache.

    None where the system does not say. Linux tells the truth only to who may write the file, and says "all" to others.
    """
    effective = os.access in os.supports_effective_ids
    may_know = os.geteuid() == os.fstat(descriptor).st_uid or os.access(path, os.W_OK, effective_ids=effective)
    ask = getattr(ctypes.CDLL(None), "mincore", None)
    if not size or not may_know or ask is None:
        return None
    states = np.zeros(-(-size // mmap.PAGESIZE), np.uint8)
    try:
        # Private and writable: ctypes takes the address of nothing that is read-only.
        with mmap.mmap(descriptor, size, flags=mmap.MAP_PRIVATE) as mapping:
            first = ctypes.c_char.from_buffer(mapping)
            address, vector = ctypes.c_void_p(ctypes.addressof(first)), states.ctypes.data_as(ctypes.c_void_p)
            failed = ask(address, ctypes.c_size_t(size), vector)
            del first  # a mapping whose address is held cannot be closed
    except (OSError, ValueError):  # a file system that maps nothing; a file that has become shorter
        return None
    return None if failed else (states & 1).astype(np.bool_)


def _drop(descriptor: int, pages: Pages) -> None:
    """Take pages out of the page cache, in runs of them; nothing where the system does not offer it."""
    if not hasattr(os, "posix_fadvise"):
        return
    edges = np.flatnonzero(np.diff(np.concatenate(([False], pages, [False])).astype(np.int8)))
    for start, stop in (edges.reshape(-1, 2) * mmap.PAGESIZE).tolist():
        if stop - start >= _LEAST_DROPPED_BYTES:
            with suppress(OSError):
                os.posix_fadvise(descriptor, start, stop - start, os.POSIX_FADV_DONTNEED)
