"""Where the samples of a training step come from, and how they are read.

A new input source is one file with a class that has the methods of `workloads.data.source.Source`, and
one row in `SOURCES`. Importing this package does not import torch: the command line makes its options
from `DataOptions`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from perfkit.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.data import DataLoader, Dataset, Sampler

    from workloads.data.source import Source

SOURCES: Final[dict[str, str]] = {
    "memory": "workloads.data.memory:Memory",
    "hdf5": "workloads.data.hdf5:Hdf5",
    "safetensors": "workloads.data.safetensors:Safetensors",
}
"""Name to `module:attribute`; nothing is imported before it is asked for."""


class DataOptions(Struct, frozen=True, kw_only=True):
    """How samples are stored and read.

    Raises:
        ValueError: options that cannot go together, by name.
    """

    source: Annotated[str, Meta(description=f"where samples come from: {', '.join(SOURCES)}")] = "memory"
    read: Annotated[
        Literal["per-sample", "batched"],
        Meta(description="one read a sample, as people first write it, or one a batch"),
    ] = "batched"
    data_dir: Annotated[str | None, Meta(description="folder of the files that hold the samples")] = None
    num_workers: Annotated[
        int, Meta(ge=0, description="processes that load ahead; 0 loads in the training process")
    ] = 0
    prefetch: Annotated[int, Meta(ge=1, description="batches that each worker loads ahead")] = 2
    pin_memory: Annotated[bool, Meta(description="copy batches into page-locked memory for the accelerator")] = False
    # A forked worker copies a process that by then runs threads (gloo, the profiler, an MPI's progress engine)
    # and holds their locks for ever; a fork under some MPIs corrupts memory. A fork server is started clean, and
    # imports torch once for all workers where spawn imports it once a worker.
    worker_start: Annotated[
        Literal["fork", "spawn", "forkserver"],
        Meta(description="how workers start; fork is quick, but unsafe beside threads and MPI"),
    ] = "forkserver"
    hdf5_chunk: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="samples a chunk of the HDF5 file; contiguous without"),
    ] = None
    hdf5_compression: Annotated[
        Literal["none", "gzip", "lzf"], Meta(description="compression of the HDF5 file's chunks")
    ] = "none"

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ValueError(f"unknown source {self.source!r}: choose from {', '.join(SOURCES)}")
        self._check_workers()
        self._check_hdf5()

    def _check_workers(self) -> None:
        """Refuse options of workers where there are none."""
        defaults = {"prefetch": 2, "worker_start": "forkserver"}
        for option, default in defaults.items():
            if self.num_workers == 0 and getattr(self, option) != default:
                raise ValueError(f"{option} has no effect without workers: set num_workers too")

    def _check_hdf5(self) -> None:
        """Refuse options of HDF5 elsewhere, and compression without chunks."""
        for option, default in {"hdf5_chunk": None, "hdf5_compression": "none"}.items():
            if self.source != "hdf5" and getattr(self, option) != default:
                raise ValueError(f"{option} is for source hdf5, not {self.source}")
        if self.hdf5_compression != "none" and self.hdf5_chunk is None:
            raise ValueError("hdf5_compression needs chunks: set hdf5_chunk too (1 suits a shuffle)")


def load_source(name: str) -> Source:
    """Import and make the source called `name`.

    Raises:
        UsageError: there is no such source.
    """
    if name not in SOURCES:
        raise UsageError(f"unknown source {name!r}: choose from {', '.join(SOURCES)}")
    module, _, attribute = SOURCES[name].partition(":")
    source: Source = getattr(importlib.import_module(module), attribute)()
    return source


def make_loader(
    dataset: Dataset[dict[str, Tensor]],
    sampler: Sampler[int],
    options: DataOptions,
    batch_size: int,
) -> DataLoader[Any]:
    """Load batches of `batch_size` samples in the sampler's order (see `workloads.data.loader`)."""
    from workloads.data import loader  # torch: not for whoever only wants the options

    return loader.make_loader(dataset, sampler, options, batch_size)
