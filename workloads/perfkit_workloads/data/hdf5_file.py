"""Reading and writing of HDF5 files of samples: one dataset per field, contiguous or chunked."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import h5py
import numpy as np
import torch
from numpy.typing import NDArray

from perfkit.errors import UsageError
from perfkit_workloads.base import DataSpec, SampleGenerator
from perfkit_workloads.data.files import STAMP, Stored, read_mapped, spare_room, stamp_of, write_slabs

if TYPE_CHECKING:
    from perfkit_workloads.data.hdf5 import Hdf5Config
    from perfkit_workloads.data.source import Read, Sample

ALIGNMENT: Final = 4096
MAX_CHUNK_BYTES: Final = (1 << 32) - 1

CACHE_BYTES: Final = 1 << 30
"""Limit of one process's cache of the decompressed chunks of a field. With shuffling almost every batch needs almost
every chunk, so only a cache of the whole dataset saves work; in a larger dataset every sample decompresses a chunk."""


def write_file(path: Path, workload: SampleGenerator, spec: DataSpec, config: Hdf5Config) -> None:
    """Write one dataset per field; contiguous ones begin on a page, ready to be mapped."""
    aligned = {"alignment_threshold": 1, "alignment_interval": ALIGNMENT}
    # Whole chunks are written, at once: a cache could not write its own when the disk is full.
    layout = {"rdcc_nbytes": 0} if config.hdf5_chunk else aligned
    try:
        with (
            spare_room(path, spec) as free,
            h5py.File(path, "w", libver=("v110", "v110"), locking=False, **layout) as file,
        ):
            try:
                _fill(file, workload, spec, config)
            finally:
                free()
    except RuntimeError as error:  # from h5py when it closes a file that could not be written
        first = error.__context__
        raise first if isinstance(first, OSError) else OSError(error.args[0]) from error


def inspect_file(path: Path) -> Stored:
    try:
        with _opened(path) as file:
            fields = {
                name: (tuple(item.shape), str(item.dtype))
                for name, item in file.items()
                if isinstance(item, h5py.Dataset)
            }
            return Stored(file.attrs.get(STAMP), fields)
    except (KeyError, RuntimeError) as error:  # from h5py for damaged metadata
        raise ValueError(error.args[0]) from error


def _fill(file: h5py.File, workload: SampleGenerator, spec: DataSpec, config: Hdf5Config) -> None:
    chunk = config.hdf5_chunk
    compression = None if config.hdf5_compression == "none" else config.hdf5_compression
    for field in spec.fields:
        if chunk and chunk * field.sample_bytes > MAX_CHUNK_BYTES:
            raise UsageError(f"hdf5_chunk {chunk} makes chunks of 4 GiB or more of {field.name}: choose fewer")
        shape = (spec.samples, *field.shape)
        chunks = (min(chunk, spec.samples), *field.shape) if chunk else None
        file.create_dataset(field.name, shape, field.dtype, chunks=chunks, compression=compression)

    def put(name: str, start: int, samples: NDArray[Any]) -> None:
        file[name][start : start + len(samples)] = samples

    write_slabs(workload, spec, put, multiple_of=chunk)
    file.attrs[STAMP] = stamp_of(spec).decode()


def _opened(path: Path, **cache: Any) -> h5py.File:
    """Open for reading, without a lock: finished files never change, and some file systems do not support locks."""
    return h5py.File(path, "r", locking=False, **cache)


def open_per_sample(path: Path, spec: DataSpec) -> Read:
    """Read one sample of each field at a time, through HDF5 with its default settings."""
    file = _opened(path)
    datasets = {field.name: file[field.name] for field in spec.fields}

    def read(index: int) -> Sample:
        return {name: torch.from_numpy(dataset[index]) for name, dataset in datasets.items()}

    return read


def open_mapped(path: Path, spec: DataSpec) -> Read:
    """Map the file and copy samples straight out of the page cache, bypassing HDF5."""
    with _opened(path) as file:
        offsets = {field.name: file[field.name].id.get_offset() for field in spec.fields}
    tensors = {}
    with path.open("rb") as raw:
        # Private and writable: torch warns about tensors on read-only memory.
        content = mmap.mmap(raw.fileno(), 0, flags=mmap.MAP_PRIVATE)
    for field in spec.fields:
        shape = (spec.samples, *field.shape)
        array = np.ndarray(shape, field.dtype, buffer=content, offset=offsets[field.name])
        tensors[field.name] = torch.from_numpy(array)
    return read_mapped(path, spec, tensors, offsets)


def open_chunked(path: Path, spec: DataSpec) -> Read:
    """Read the samples of a batch in the file's order, compressed chunks through a cache of the whole dataset."""
    largest = max(spec.fields, key=lambda field: field.sample_bytes)
    with _opened(path) as file:
        compressed = file[largest.name].compression is not None
    # Without a cache HDF5 reads only the needed part of an uncompressed chunk, and the page cache serves all ranks.
    cache = min(CACHE_BYTES, spec.samples * largest.sample_bytes) if compressed else 0
    # The smallest chunk is one sample; HDF5 recommends about 100 slots per cached chunk, against collisions.
    slots = 100 * min(spec.samples, 10_000) + 1
    file = _opened(path, rdcc_nbytes=cache, rdcc_nslots=slots, rdcc_w0=1.0)
    datasets = [(field, file[field.name]) for field in spec.fields]

    def read(indices: list[int]) -> Sample:
        order = sorted(range(len(indices)), key=indices.__getitem__)
        batch = {}
        for field, dataset in datasets:
            samples = np.empty((len(indices), *field.shape), field.dtype)
            for index in order:
                samples[index] = dataset[indices[index]]
            batch[field.name] = torch.from_numpy(samples)
        return batch

    return read
