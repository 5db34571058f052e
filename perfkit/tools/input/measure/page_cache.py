"""Files: what of them is in the page cache, how to empty it, how fast they can be read, and how Lustre stripes them."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from perfkit.record.training.file_bandwidth import BLOCK_BYTES, cached_pages, measure_file_bandwidth

DROPPED_BY: Final = "posix_fadvise(POSIX_FADV_DONTNEED)" if hasattr(os, "posix_fadvise") else None
"""How files are dropped from the page cache; None where the system cannot."""

MOSTLY: Final = 0.95


class FileSpeed(NamedTuple):
    """Bytes per second of reading from the beginning in large blocks; None if the cache was not in that state."""

    cold: float | None
    warm: float | None


def files_below(paths: Sequence[Path | None]) -> list[Path]:
    """Return the files that `Source.prepare` returned, and of folders the files in them."""
    found: list[Path] = []
    for path in paths:
        if path is not None:
            found += sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    return found


def drop(files: Sequence[Path]) -> None:
    """Drop files from the page cache, unless another process has them mapped or the system cannot."""
    if DROPPED_BY is None:
        return
    for path in files:
        with path.open("rb") as file, suppress(OSError):
            os.fsync(file.fileno())  # pages that are not on disk yet are not dropped
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached_share(files: Sequence[Path]) -> float | None:
    """Return the share of the files' pages that are in the page cache; None if the system does not report it."""
    pages = cached = 0
    for path in files:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            states = cached_pages(path, file.fileno(), size) if size else None
        if size and states is None:
            return None
        if states is not None:
            pages, cached = pages + len(states), cached + int(states.sum())
    return cached / pages if pages else None


def measure_speed(files: Sequence[Path]) -> FileSpeed:
    """Read the first file from its beginning, first out of the page cache, then in it."""
    file = files[:1]
    drop(file)
    share = cached_share(file)
    cold = measure_file_bandwidth(file[0]) if share is not None and share < 1 - MOSTLY else None
    _read(file[0])
    share = cached_share(file)
    warm = measure_file_bandwidth(file[0]) if share is not None and share > MOSTLY else None
    return FileSpeed(cold.bytes_per_s if cold else None, warm.bytes_per_s if warm else None)


def _read(path: Path) -> None:
    buffer = bytearray(BLOCK_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


_LIMIT_S: Final = 10


class Stripes(NamedTuple):
    """The layout of a file."""

    targets: int
    stripe_bytes: int
    """Consecutive bytes on one of them."""


def find_stripes(path: Path) -> Stripes | None:
    """Return the layout of a file; None if it is not on Lustre, or `lfs` is not on the PATH."""
    if shutil.which("lfs") is None:
        return None
    count, size = _ask("--stripe-count", path), _ask("--stripe-size", path)
    return None if count is None or size is None else Stripes(count, size)


def _ask(what: str, path: Path) -> int | None:
    command = ["lfs", "getstripe", what, str(path.absolute())]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    # A file of several components has a line each; the last number is that of its largest part.
    numbers = [word for word in done.stdout.split() if word.isdecimal()]
    return int(numbers[-1]) if done.returncode == 0 and numbers else None
