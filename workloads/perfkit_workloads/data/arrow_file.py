"""Reads and writes the files of the source `arrow`.

The format is Arrow's IPC stream: the schema, then record batches, which `datasets` maps into memory. A column of
tensors is one of lists of fixed size, nested as deep as the tensors have dimensions: `datasets.List(..., length=N)`.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from perfkit_workloads.base import DataSpec, Field, SampleGenerator
from perfkit_workloads.data.files import STAMP, Readahead, Stored, stamp_of, write_slabs

if TYPE_CHECKING:
    from perfkit_workloads.data.source import Read, Sample

TYPES: Final = {"float32": pa.float32(), "int32": pa.int32()}
ITEM_BYTES: Final = 4
NAMES: Final = {kind: name for name, kind in TYPES.items()}


class _Part(NamedTuple):
    """A record batch."""

    first: int
    """Number of its first sample."""
    samples: int
    columns: dict[str, Any]
    """Arrow's arrays by name."""
    arrays: dict[str, NDArray[Any]]
    """Their mapped memory: samples along the first axis."""
    offsets: dict[str, int]
    """Where in the file each of `arrays` begins."""


class _Mapped(NamedTuple):
    stamp: bytes | None
    fields: dict[str, tuple[tuple[int, ...], str]]
    """Shape and dtype of all samples by name."""
    parts: list[_Part]


def write_file(path: Path, workload: SampleGenerator, spec: DataSpec) -> None:
    """Write the samples, one record batch per slab."""
    kinds = [(field.name, reduce(pa.list_, reversed(field.shape), TYPES[field.dtype])) for field in spec.fields]
    schema = pa.schema(kinds, metadata={STAMP: stamp_of(spec)})
    with path.open("wb") as file, pa.ipc.new_stream(file, schema) as writer:
        columns: dict[str, Any] = {}

        def put(name: str, start: int, samples: NDArray[Any]) -> None:
            del start  # slabs come in order
            flat = pa.array(samples.reshape(-1))
            columns[name] = reduce(pa.FixedSizeListArray.from_arrays, reversed(samples.shape[1:]), flat)
            if len(columns) == len(spec.fields):
                writer.write_batch(pa.record_batch([columns[name] for name in schema.names], schema=schema))
                columns.clear()

        write_slabs(workload, spec, put)


def inspect_file(path: Path) -> Stored:
    mapped = _map(path)
    return Stored(mapped.stamp, mapped.fields)


def open_per_sample(path: Path, spec: DataSpec) -> Read:
    parts = _map(path).parts
    firsts = [part.first for part in parts]

    def read(index: int) -> Sample:
        part = parts[bisect_right(firsts, index) - 1]
        row = index - part.first
        return {
            field.name: torch.from_numpy(_values(part.columns[field.name].slice(row, 1)).reshape(field.shape).copy())
            for field in spec.fields
        }

    return read


def open_batched(path: Path, spec: DataSpec) -> Read:
    """Copy the samples of a batch out of the page cache, after asking for all of them at once."""
    parts = _map(path).parts
    firsts = [part.first for part in parts]
    ahead = [
        Readahead(path, [(part.offsets[field.name], field.sample_bytes) for field in spec.fields], part.samples)
        for part in parts
    ]

    def read(indices: list[int]) -> Sample:
        at = [bisect_right(firsts, index) - 1 for index in indices]
        for number in set(at):
            ahead[number].ask([index - firsts[number] for index, its in zip(indices, at, strict=True) if its == number])
        return {field.name: _pick(field, parts, at, indices) for field in spec.fields}

    return read


def _pick(field: Field, parts: list[_Part], at: list[int], indices: list[int]) -> torch.Tensor:
    """Copy samples out of several record batches, in the order of `indices`; `at` has the batch of each."""
    samples = np.empty((len(indices), *field.shape), field.dtype)
    for row, (number, index) in enumerate(zip(at, indices, strict=True)):
        samples[row] = parts[number].arrays[field.name][index - parts[number].first]
    return torch.from_numpy(samples)


def _map(path: Path) -> _Mapped:
    """Map a file into memory."""
    try:
        return _read_stream(pa.memory_map(str(path)))
    except KeyError as error:  # two columns of one name
        raise ValueError(str(error.args[0])) from error
    except (pa.ArrowException, MemoryError) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def _read_stream(file: Any) -> _Mapped:
    begin = file.read_buffer().address
    file.seek(0)
    reader = pa.ipc.open_stream(file)
    kinds = {column.name: kind for column in reader.schema if (kind := _shape_and_dtype(column.type)) is not None}
    parts, samples = [], 0
    for batch in reader:
        if not batch.num_rows:
            continue
        batch.validate()
        columns = {name: batch.column(name) for name in kinds}
        arrays = {name: _values(columns[name]).reshape(batch.num_rows, *shape) for name, (shape, _) in kinds.items()}
        offsets = {name: array.ctypes.data - begin for name, array in arrays.items()}
        parts.append(_Part(samples, batch.num_rows, columns, arrays, offsets))
        samples += batch.num_rows
    fields = {name: ((samples, *shape), dtype) for name, (shape, dtype) in kinds.items()}
    return _Mapped((reader.schema.metadata or {}).get(STAMP.encode()), fields, parts)


def _shape_and_dtype(kind: Any) -> tuple[tuple[int, ...], str] | None:
    """Return the shape of a sample and the type of its numbers; None if a column holds something else."""
    shape = []
    while pa.types.is_fixed_size_list(kind):
        shape.append(kind.list_size)
        kind = kind.value_type
    return (tuple(shape), NAMES[kind]) if kind in NAMES else None


def _values(column: Any) -> NDArray[Any]:
    """Return the numbers of a column of any depth along one axis: the file's memory, read-only."""
    while pa.types.is_fixed_size_list(column.type):
        column = column.flatten()
    if column.null_count:
        raise ValueError("numbers are missing")
    # Not `to_numpy`, which imports pandas: the first load would take a second longer, and 25 MB.
    return np.frombuffer(column.buffers()[1], NAMES[column.type], len(column), column.offset * ITEM_BYTES)
