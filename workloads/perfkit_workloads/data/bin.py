"""The source `bin`: token ids as nanoGPT stores them: a flat file of 16-bit unsigned integers without a header.

The samples follow each other. What a header would contain, the stamp, is in a second file with `.json` appended to the
name, so that other programs can read the first.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from perfkit.errors import UsageError
from perfkit_workloads.base import DataSpec, Field, SampleGenerator
from perfkit_workloads.data import DataOptions
from perfkit_workloads.data.files import FileSource, Readahead, Stamp, Stored, stamp_of, write_slabs
from perfkit_workloads.data.source import NoOptions

if TYPE_CHECKING:
    from perfkit_workloads.data.files import Opener
    from perfkit_workloads.data.source import Read, Sample

TOKEN: Final = np.dtype("<u2")
IDS: Final = 1 << 16


class Bin(FileSource[NoOptions]):
    """Files of token ids that `numpy.memmap(file, dtype=numpy.uint16)` reads."""

    suffix = ".bin"

    def companions(self, path: Path) -> list[Path]:
        return [_stamp_path(path)]

    def stored_bytes(self, spec: DataSpec) -> int:
        return sum(spec.samples * field.sample_bytes // 4 * TOKEN.itemsize for field in spec.fields)

    def find_problem(self, spec: DataSpec, options: DataOptions) -> str | None:
        others = [field.name for field in spec.fields if field.dtype != "int32"]
        if others or len(spec.fields) != 1:
            what = f"its field {others[0]} is not" if others else "it has several fields"
            return f"source bin contains one sequence of token ids, and {spec.workload} has other samples: {what}"
        vocabulary = spec.parameters.get("vocab_size")
        if isinstance(vocabulary, int) and vocabulary > IDS:
            return f"source bin contains token ids of 16 bits, up to {IDS:,}; the vocabulary has {vocabulary:,}"
        return super().find_problem(spec, options)

    def write(self, path: Path, workload: SampleGenerator, spec: DataSpec) -> None:
        """Write the tokens, and the stamp beside them."""
        with path.open("wb") as file:

            def put(name: str, start: int, samples: NDArray[Any]) -> None:
                if samples.size and not 0 <= samples.min() <= samples.max() < IDS:
                    raise UsageError(f"{name} {start:,} to {start + len(samples):,} are not token ids below {IDS:,}")
                file.write(samples.astype(TOKEN).data)

            write_slabs(workload, spec, put)
        _stamp_path(path).write_bytes(stamp_of(spec))

    def inspect(self, path: Path) -> Stored:
        size = path.stat().st_size
        try:
            stamp = _stamp_path(path).read_bytes()
        except FileNotFoundError:
            return Stored(None, {})
        (field,) = msgspec.json.decode(stamp, type=Stamp).spec.fields
        samples, rest = divmod(size, field.sample_bytes // 4 * TOKEN.itemsize)
        if rest:
            raise ValueError(f"its {size:,} bytes are not whole samples of {field.name}")
        return Stored(stamp, {field.name: ((samples, *field.shape), field.dtype)})

    def opener(self, options: DataOptions) -> Opener:
        return _open_per_sample if options.read == "per-sample" else _open_batched


def _stamp_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")


def _map(path: Path, field: Field) -> NDArray[Any]:
    return np.memmap(path, TOKEN, "r").reshape(-1, *field.shape)


def _open_per_sample(path: Path, spec: DataSpec) -> Read:
    """Widen the tokens of one sample at a time."""
    import torch

    (field,) = spec.fields
    tokens = _map(path, field)

    def read(index: int) -> Sample:
        return {field.name: torch.from_numpy(tokens[index].astype(field.dtype))}

    return read


def _open_batched(path: Path, spec: DataSpec) -> Read:
    """Widen the tokens of a batch, after asking for all of them at once."""
    import torch

    (field,) = spec.fields
    tokens = _map(path, field)
    readahead = Readahead(path, [(0, tokens[0].nbytes)], spec.samples)

    def read(indices: list[int]) -> Sample:
        readahead.ask(indices)
        return {field.name: torch.from_numpy(tokens[indices].astype(field.dtype))}

    return read
