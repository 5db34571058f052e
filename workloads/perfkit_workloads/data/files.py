"""The base of sources with one file per data set: written once and atomically, stamped, and checked before reuse."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from perfkit.errors import StoreError, UsageError
from perfkit_workloads.base import DataSpec, SampleGenerator
from perfkit_workloads.data import DataOptions
from perfkit_workloads.data.source import ConfigT, Source

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from perfkit_workloads.data.source import Read, Sample

    Opener = Callable[[Path, DataSpec], Read]

STAMP: Final = "perfkit_samples"
"""Name of the attribute or metadata entry that holds the stamp."""

STAMP_VERSION: Final = 1
_SLAB_BYTES: Final = 32 << 20
INDEX_BYTES: Final = 64
HEADER_BYTES: Final = 1 << 20
"""With `INDEX_BYTES` per sample, an upper bound of what a format adds to the samples."""

ELSEWHERE: Final = "remove it or choose another --data-dir"

NO_LOCKS: Final = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK}


class Stamp(Struct, frozen=True, kw_only=True):
    """Metadata of a file, by which it is recognised."""

    version: int = STAMP_VERSION
    fingerprint: str
    spec: DataSpec


class Stored(NamedTuple):
    """What a file says of its content."""

    stamp: str | bytes | None
    """None if the file has none."""
    fields: dict[str, tuple[tuple[int, ...], str]]
    """Shape and dtype by name."""


class FileSource(Source[ConfigT]):
    """A source with one file per data set."""

    @property
    @abstractmethod
    def suffix(self) -> str:
        """Ends the file's name; another layout of the same content has another one."""

    @property
    def compresses(self) -> bool:
        """Whether the file may be smaller than the samples."""
        return False

    def companions(self, path: Path) -> list[Path]:  # noqa: ARG002  # for subclasses
        """Return the further files that `write` creates beside `path`: none, unless overridden."""
        return []

    def stored_bytes(self, spec: DataSpec) -> int:
        """Return how many bytes the samples take in the file, without compression."""
        return spec.samples * spec.sample_bytes

    @abstractmethod
    def write(self, path: Path, workload: SampleGenerator, spec: DataSpec) -> None:
        """Write the samples and a stamp to `path`, slab by slab, and close it."""

    @abstractmethod
    def inspect(self, path: Path) -> Stored:
        """Return what a file says of its content.

        Raises:
            OSError: It cannot be read.
            ValueError: It is not of this format.
        """

    @abstractmethod
    def opener(self, options: DataOptions) -> Opener:
        """Return the function that opens a file's samples, in the process that calls it."""

    def dataset(
        self,
        workload: SampleGenerator,  # noqa: ARG002
        spec: DataSpec,
        path: Path | None,
        options: DataOptions,
    ) -> Dataset[Sample]:
        from perfkit_workloads.data.dataset import SampleDataset

        if path is None:
            raise TypeError("a source with a file needs the path that prepare returned")
        return SampleDataset(spec.samples, partial(self.opener(options), path, spec))

    def prepare(self, workload: SampleGenerator, spec: DataSpec, options: DataOptions) -> Path:
        """Write the file unless it exists; of two writers the second waits.

        Raises:
            StoreError: It cannot be written, or a foreign, stale or damaged file is in its place.
            UsageError: No folder was chosen.
        """
        if options.data_dir is None:
            raise UsageError(f"source {options.source} needs a folder: set data_dir")
        path = Path(options.data_dir) / f"{spec.workload}-{spec.fingerprint[:12]}{self.suffix}"
        # A finished file appears by a rename, so it is read without the lock (and from read-only folders).
        if path.exists():
            self._check(path, spec)
            return path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(path) as alone:
                if not path.exists():
                    for left_over in path.parent.glob(f"{_prefix(path)}*.tmp") if alone else ():  # of a killed writer
                        shutil.rmtree(left_over, ignore_errors=True)  # does not follow links
                    self._write(path, workload, spec)
                    return path
        except OSError as error:
            raise StoreError(f"cannot write {path}: {_reason(error)}; set another --data-dir") from error
        self._check(path, spec)
        return path

    def _write(self, path: Path, workload: SampleGenerator, spec: DataSpec) -> None:
        """Write in a new folder beside it that nobody else can access, then rename: libraries follow links."""
        with TemporaryDirectory(prefix=_prefix(path), suffix=".tmp", dir=path.parent) as private:
            temporary = Path(private, path.name)
            if not self.compresses:
                _check_room(temporary, self.stored_bytes(spec) + _around_samples(spec))
            self.write(temporary, workload, spec)
            # The file comes last: where it is, everything is.
            for written, final in zip(self.companions(temporary), self.companions(path), strict=True):
                _to_disk(written)
                written.rename(final)
            _to_disk(temporary)
            temporary.rename(path)

    def _check(self, path: Path, spec: DataSpec) -> None:
        """Refuse a file that was not written for `spec`, or lacks samples; a finished one appears as a whole."""
        try:
            stored = self.inspect(path)
            stamp = None if stored.stamp is None else msgspec.json.decode(stored.stamp, type=Stamp)
        except (OSError, ValueError) as error:
            raise StoreError(f"{path}: damaged or foreign ({_reason(error)}); {ELSEWHERE}") from error
        if stamp is None:
            raise StoreError(f"{path}: foreign file, not written by perfkit; {ELSEWHERE}")
        if stamp.version != STAMP_VERSION or stamp.fingerprint != spec.fingerprint:
            raise StoreError(
                f"{path}: stale: it contains other samples (fingerprint {stamp.fingerprint[:12]}) than this "
                f"run needs ({spec.fingerprint[:12]}); {ELSEWHERE}"
            )
        for field in spec.fields:
            expected, found = ((spec.samples, *field.shape), field.dtype), stored.fields.get(field.name)
            if found != expected:
                raise StoreError(f"{path}: damaged (field {field.name} is {found}, not {expected}); {ELSEWHERE}")


def write_slabs(
    workload: SampleGenerator,
    spec: DataSpec,
    put: Callable[[str, int, NDArray[Any]], None],
    multiple_of: int | None = None,
) -> None:
    """Generate the samples and call `put(name, start, samples)` for each field, by about `_SLAB_BYTES` of samples.

    Args:
        multiple_of: What the number of samples in a slab is a multiple of; None: of whole blocks.
    """
    whole = multiple_of or spec.block_samples
    size = whole * max(1, _SLAB_BYTES // spec.sample_bytes // whole)
    for start in range(0, spec.samples, size):
        for name, samples in workload.generate(spec, start, min(start + size, spec.samples)).items():
            put(name, start, samples)


def stamp_of(spec: DataSpec) -> bytes:
    return msgspec.json.encode(Stamp(fingerprint=spec.fingerprint, spec=spec))


def _prefix(path: Path) -> str:
    """Return the prefix of the temporary folders of processes on this host that write `path`."""
    return f".{path.name}.{socket.gethostname()}."


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold the lock of `path` against other writers, and yield whether the file system supports locks.

    Without locks two writers both write the file, and the second rename wins: harmless, as the content is the same.
    """
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
    with os.fdopen(descriptor, "w") as lock:
        alone = True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            alone = False
        yield alone


def _check_room(path: Path, size: int) -> None:
    """Refuse, before any work, a file of `size` bytes that exceeds the free space or the limit on file sizes.

    Nothing is allocated: on file systems without allocation the C library would write every block instead.
    """
    disk = os.statvfs(path.parent)
    if disk.f_bavail * disk.f_frsize < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    path.touch()
    os.truncate(path, size)
    path.unlink()


def _around_samples(spec: DataSpec) -> int:
    """Return an upper bound of the bytes that a format adds to the samples."""
    return spec.samples * INDEX_BYTES + HEADER_BYTES


@contextmanager
def spare_room(path: Path, spec: DataSpec) -> Iterator[Callable[[], None]]:
    """Reserve space on the disk of `path` for closing a file after the disk is full; yield a function that frees it.

    Free space neither accounts for quotas nor for other writers. HDF5 writes its indexes when it closes a file, and
    crashes the process at exit if they do not fit.
    """
    spare = path.with_suffix(".spare.tmp")

    def free() -> None:
        spare.unlink(missing_ok=True)

    try:
        spare.write_bytes(os.urandom(_around_samples(spec)))  # zeros may be compressed
        yield free
    finally:
        free()


def _to_disk(path: Path) -> None:
    """Wait until `path` is on disk: network file systems report a full disk only here."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _reason(error: OSError | ValueError) -> str:
    """Return the error in one line; messages of h5py have many."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number else str(error).splitlines()[0]


def read_mapped(path: Path, spec: DataSpec, tensors: Sample, offsets: dict[str, int]) -> Read:
    """Return what copies the samples of a batch out of the page cache, after asking for all of them at once.

    Args:
        tensors: The mapped file, by field.
        offsets: Where in the file the first sample of each field begins.
    """
    from perfkit_workloads.data.dataset import pick_batch

    readahead = Readahead(path, [(offsets[field.name], field.sample_bytes) for field in spec.fields], spec.samples)

    def read(indices: list[int]) -> Sample:
        readahead.ask(indices)
        return pick_batch(tensors, indices)

    return read


class Readahead:
    """Ask the kernel to read all samples of a batch at once, each sample only the first time.

    Page faults and reads wait for one sample after the other: with a cold page cache a shuffled batch takes two to
    three times as long. A hint costs 1.5 us per sample, hence only the first time.

    Args:
        fields: (offset of the first sample, bytes per sample) of each field.
    """

    def __init__(self, path: Path, fields: list[tuple[int, int]], samples: int) -> None:
        self._path = path
        self._fields = fields
        self._seen = np.zeros(samples, dtype=bool)

    def ask(self, indices: list[int]) -> None:
        """Start reading those of `indices` that were not read before."""
        new = [index for index in indices if not self._seen[index]]
        if not (new and hasattr(os, "posix_fadvise")):
            return
        self._seen[new] = True
        with self._path.open("rb") as file:
            for index in new:
                for offset, size in self._fields:
                    os.posix_fadvise(file.fileno(), offset + index * size, size, os.POSIX_FADV_WILLNEED)
