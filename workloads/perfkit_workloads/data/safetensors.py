"""The source `safetensors`: samples in a safetensors file, one tensor per field.

The format is an eight-byte little-endian length, a JSON header of that length, and the tensors without gaps. It is
written here by hand because the library needs all tensors in memory at once.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from numpy.typing import NDArray

from perfkit_workloads.base import DataSpec, SampleGenerator
from perfkit_workloads.data import DataOptions
from perfkit_workloads.data.files import STAMP, FileSource, Stored, read_mapped, stamp_of, write_slabs
from perfkit_workloads.data.source import NoOptions

if TYPE_CHECKING:
    from perfkit_workloads.data.files import Opener
    from perfkit_workloads.data.source import Read, Sample

DTYPES: Final = {"float32": "F32", "int32": "I32"}
NUMPY_DTYPES: Final = {code: name for name, code in DTYPES.items()}
ALIGNMENT: Final = 64


class Safetensors(FileSource[NoOptions]):
    """Files that the safetensors library, and anything else that reads the format, can open."""

    suffix = ".safetensors"
    package = "safetensors"
    extra = "run"

    def write(self, path: Path, workload: SampleGenerator, spec: DataSpec) -> None:
        header = _header(spec)
        offsets = _offsets(spec, len(header))
        sizes = {field.name: field.sample_bytes for field in spec.fields}
        with path.open("wb") as file:
            file.write(header)

            def put(name: str, start: int, samples: NDArray[Any]) -> None:
                file.seek(offsets[name] + start * sizes[name])
                file.write(samples.data)

            write_slabs(workload, spec, put)

    def inspect(self, path: Path) -> Stored:
        from safetensors import SafetensorError, safe_open

        try:
            with safe_open(path, framework="numpy") as file:
                slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
                fields = {
                    name: (tuple(part.get_shape()), NUMPY_DTYPES.get(part.get_dtype(), "unknown"))
                    for name, part in slices.items()
                }
                return Stored((file.metadata() or {}).get(STAMP), fields)
        except SafetensorError as error:
            raise ValueError(str(error)) from error

    def opener(self, options: DataOptions) -> Opener:
        return _open_per_sample if options.read == "per-sample" else _open_mapped


def _header(spec: DataSpec) -> bytes:
    """Return length and header, padded with spaces so that the tensors are aligned."""
    end = 0
    entries: dict[str, Any] = {"__metadata__": {STAMP: stamp_of(spec).decode()}}
    for field in spec.fields:
        start, end = end, end + spec.samples * field.sample_bytes
        entries[field.name] = {
            "dtype": DTYPES[field.dtype],
            "shape": [spec.samples, *field.shape],
            "data_offsets": [start, end],
        }
    header = msgspec.json.encode(entries)
    header += b" " * (-(8 + len(header)) % ALIGNMENT)
    return struct.pack("<Q", len(header)) + header


def _offsets(spec: DataSpec, header_bytes: int) -> dict[str, int]:
    offsets = {}
    for field in spec.fields:
        offsets[field.name] = header_bytes
        header_bytes += spec.samples * field.sample_bytes
    return offsets


def _open_per_sample(path: Path, spec: DataSpec) -> Read:
    """Read one sample of each field at a time through a slice of the file."""
    from safetensors import safe_open

    file: Any = safe_open(path, framework="pt")
    slices = {field.name: file.get_slice(field.name) for field in spec.fields}

    def read(index: int) -> Sample:
        return {name: part[index] for name, part in slices.items()}

    return read


def _open_mapped(path: Path, spec: DataSpec) -> Read:
    """Copy samples straight out of the page cache: the library maps the file."""
    from safetensors import safe_open

    file: Any = safe_open(path, framework="pt")
    tensors = {field.name: file.get_tensor(field.name) for field in spec.fields}
    with path.open("rb") as raw:
        (length,) = struct.unpack("<Q", raw.read(8))
    return read_mapped(path, spec, tensors, _offsets(spec, 8 + length))
