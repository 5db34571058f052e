"""The source `pt`: samples in a file of `torch.save`, one tensor per field, mapped by `torch.load`.

The file is a dictionary of the tensors and the stamp. It is read with `weights_only`, which builds tensors and plain
values only and runs no code of the file.
"""

from __future__ import annotations

import struct
import zipfile
from contextlib import ExitStack
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from perfkit_workloads.base import DataSpec, SampleGenerator
from perfkit_workloads.data import DataOptions
from perfkit_workloads.data.files import STAMP, FileSource, Stored, read_mapped, stamp_of, write_slabs
from perfkit_workloads.data.source import NoOptions

if TYPE_CHECKING:
    from perfkit_workloads.data.files import Opener
    from perfkit_workloads.data.source import Read, Sample

_UNREADABLE: Final = (RuntimeError, UnpicklingError, LookupError, TypeError, AttributeError, EOFError)
"""What torch.load raises, besides OSError and ValueError, for files that are damaged or of another format."""

_RECORD_HEADER: Final = 30
"""Bytes of a zip record's header before its name (APPNOTE.TXT, section 4.3.7)."""


class Pt(FileSource[NoOptions]):
    """Files that `torch.load` can open anywhere, mapped into memory."""

    suffix = ".pt"

    def write(self, path: Path, workload: SampleGenerator, spec: DataSpec) -> None:
        """Write the fields to separate files, then all of them, mapped, to one: torch.save needs whole tensors."""
        with ExitStack() as stack:
            raw = {f.name: stack.enter_context(path.with_name(f"{f.name}.raw").open("w+b")) for f in spec.fields}

            def put(name: str, start: int, samples: NDArray[Any]) -> None:
                del start  # slabs come in order
                raw[name].write(samples.data)

            write_slabs(workload, spec, put)
            for file in raw.values():
                file.flush()
            arrays = {
                field.name: np.memmap(raw[field.name], field.dtype, "c", shape=(spec.samples, *field.shape))
                for field in spec.fields
            }
            _save(path, stamp_of(spec).decode(), arrays)
        for name in raw:
            path.with_name(f"{name}.raw").unlink()

    def inspect(self, path: Path) -> Stored:
        stamp, tensors = _load(path)
        return Stored(
            stamp, {name: (tuple(one.shape), str(one.dtype).removeprefix("torch.")) for name, one in tensors.items()}
        )

    def opener(self, options: DataOptions) -> Opener:
        return _open_per_sample if options.read == "per-sample" else _open_batched


class _Loaded(NamedTuple):
    stamp: str | None
    tensors: Sample


def _save(path: Path, stamp: str, arrays: dict[str, Any]) -> None:
    import torch

    content = {STAMP: stamp, **{name: torch.from_numpy(array) for name, array in arrays.items()}}
    try:
        with path.open("wb") as file:
            torch.save(content, file)
    except RuntimeError as error:  # from torch's own writer, after the file's
        raise error.__context__ if isinstance(error.__context__, OSError) else OSError(str(error)) from error


def _load(path: Path) -> _Loaded:
    import torch

    try:
        content = torch.load(path, mmap=True, weights_only=True, map_location="cpu")
    except _UNREADABLE as error:
        raise ValueError(str(error) or type(error).__name__) from error
    if not isinstance(content, dict):
        raise ValueError("it does not contain a dictionary")
    stamp = content.get(STAMP)
    tensors = {str(name): value for name, value in content.items() if isinstance(value, torch.Tensor)}
    return _Loaded(stamp if isinstance(stamp, str) else None, tensors)


def _open_per_sample(path: Path, spec: DataSpec) -> Read:
    """Take one sample of each mapped tensor at a time."""
    from perfkit_workloads.data.dataset import pick_sample

    tensors = {field.name: _load(path).tensors[field.name] for field in spec.fields}

    def read(index: int) -> Sample:
        return pick_sample(tensors, index)

    return read


def _open_batched(path: Path, spec: DataSpec) -> Read:
    """Copy the samples of a batch out of the page cache, after asking for all of them at once."""
    return read_mapped(path, spec, _load(path).tensors, _offsets(path, spec))


def _offsets(path: Path, spec: DataSpec) -> dict[str, int]:
    """Return the offset of each field's first sample: torch numbers the tensors in the dictionary's order."""
    with zipfile.ZipFile(path) as archive:
        headers = {one.filename.partition("/")[2]: one.header_offset for one in archive.infolist()}
    offsets = {}
    with path.open("rb") as file:
        for number, field in enumerate(spec.fields):
            begin = headers[f"data/{number}"]
            file.seek(begin + _RECORD_HEADER - 4)
            offsets[field.name] = begin + _RECORD_HEADER + sum(struct.unpack("<HH", file.read(4)))
    return offsets
