"""The source `hdf5`: samples in an HDF5 file, one dataset per field. `data.hdf5_file` reads and writes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Struct

from perfkit_workloads.base import DataSpec, SampleGenerator
from perfkit_workloads.data import DataOptions
from perfkit_workloads.data.files import FileSource, Stored

if TYPE_CHECKING:
    from perfkit_workloads.data.files import Opener


class Hdf5Config(Struct, frozen=True, kw_only=True):
    """Layout of the HDF5 file.

    Raises:
        ValueError: Compression without chunks.
    """

    hdf5_chunk: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="samples per chunk of the HDF5 file [default: contiguous]"),
    ] = None
    hdf5_compression: Annotated[
        Literal["none", "gzip", "lzf"], Meta(description="compression of the HDF5 file's chunks")
    ] = "none"

    def __post_init__(self) -> None:
        if self.hdf5_compression != "none" and self.hdf5_chunk is None:
            raise ValueError("hdf5_compression needs chunks: set hdf5_chunk too (1 suits a shuffle)")


class Hdf5(FileSource[Hdf5Config]):
    """HDF5 files that every version since 1.10 can read."""

    Config = Hdf5Config
    DEPENDENT = {"hdf5_compression": ("hdf5_chunk",)}  # noqa: RUF012  # declared as ClassVar by the base class
    package = "h5py"
    extra = "run"

    @property
    def compresses(self) -> bool:
        return self.config.hdf5_compression != "none"

    @property
    def suffix(self) -> str:
        """With the layout of the file."""
        layout = f"-chunk{self.config.hdf5_chunk}" if self.config.hdf5_chunk else ""
        return f"{layout}-{self.config.hdf5_compression}.h5" if self.compresses else f"{layout}.h5"

    def write(self, path: Path, workload: SampleGenerator, spec: DataSpec) -> None:
        from perfkit_workloads.data.hdf5_file import write_file

        write_file(path, workload, spec, self.config)

    def inspect(self, path: Path) -> Stored:
        from perfkit_workloads.data.hdf5_file import inspect_file

        return inspect_file(path)

    def opener(self, options: DataOptions) -> Opener:
        from perfkit_workloads.data.hdf5_file import open_chunked, open_mapped, open_per_sample

        if options.read == "per-sample":
            return open_per_sample
        return open_chunked if self.config.hdf5_chunk else open_mapped
