"""Input sources: where the samples of a training step come from, and how they are read.

A new source is one file with a subclass of `data.source.Source` and one row in `SOURCES`. Another package
adds one through an entry point in its `pyproject.toml`::

    [project.entry-points."perfkit.sources"]
    zarr = "mypackage.zarr:Zarr"

Importing this package does not import torch: the command line builds its options from `DataOptions` and from the
`Config` of each source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from msgspec import Meta, Struct

from perfkit.plugins import Registry

if TYPE_CHECKING:
    from perfkit_workloads.data.source import Source


def _find_problem(name: str, found: Any) -> str | None:
    from perfkit_workloads.data.source import Source  # numpy: not needed to list the names

    if not isinstance(found, type) or not issubclass(found, Source):
        return "is not a subclass of perfkit_workloads.data.source.Source"
    missing = sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        return f"does not define {', '.join(missing)}"
    config: Any = found.Config
    if not (isinstance(config, type) and issubclass(config, Struct)):
        return "has a Config that is not a msgspec.Struct"
    foreign = [option for option in config.__struct_fields__ if not option.startswith(f"{name}_")]
    return f"has the option {foreign[0]}: its options must begin with {name}_" if foreign else None


SOURCES: Final[Registry[type[Source[Any]]]] = Registry(
    "perfkit.sources",
    "source",
    {
        "memory": "perfkit_workloads.data.memory:Memory",
        "hdf5": "perfkit_workloads.data.hdf5:Hdf5",
        "safetensors": "perfkit_workloads.data.safetensors:Safetensors",
        "pt": "perfkit_workloads.data.pt:Pt",
        "bin": "perfkit_workloads.data.bin:Bin",
        "arrow": "perfkit_workloads.data.arrow:Arrow",
    },
    _find_problem,
)

_COMMON: Final = Meta(extra={"common": True})
"""Marks an option that the short help shows."""


class DataOptions(Struct, frozen=True, kw_only=True):
    """How samples are read, for any source.

    Raises:
        ValueError: The source is unknown, or an option has no effect without another one.
    """

    DEPENDENT: ClassVar[Mapping[str, tuple[str, ...]]] = {"num_workers": ("prefetch", "worker_start")}
    """Options that have an effect with some values of another option only."""

    source: Annotated[str, _COMMON, Meta(description="where samples come from")] = "memory"
    read: Annotated[
        Literal["per-sample", "batched"],
        Meta(description="one read per sample, as in simple code, or one per batch"),
    ] = "batched"
    data_dir: Annotated[str | None, Meta(description="folder of the sample files [default: .data in --trace-dir]")] = (
        None
    )
    files: Annotated[
        int,
        Meta(
            ge=1,
            le=65536,
            description="files that the samples are divided among; each rank, and each of its workers, reads its own",
        ),
    ] = 1
    preload: Annotated[bool, Meta(description="read the files into memory before the first step")] = False
    readers: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="ranks that read, and send the others their batches [default: every rank reads its own]"),
    ] = None
    num_workers: Annotated[
        int,
        _COMMON,
        Meta(ge=0, description="processes that load batches ahead; 0 loads in the training process"),
    ] = 0
    prefetch: Annotated[int, Meta(ge=1, description="batches that each worker loads ahead")] = 2
    pin_memory: Annotated[bool, Meta(description="copy batches into page-locked memory for the accelerator")] = False
    # A forked worker copies a process that by then runs threads (gloo, the profiler, an MPI's progress engine)
    # and holds their locks for ever; a fork under some MPIs corrupts memory. A fork server starts clean and imports
    # torch once for all workers, where spawn imports it once per worker.
    worker_start: Annotated[
        Literal["fork", "spawn", "forkserver"],
        Meta(description="how workers are started; fork is fast, but unsafe with threads and MPI"),
    ] = "forkserver"

    def __post_init__(self) -> None:
        if self.source not in SOURCES:
            raise ValueError(f"unknown source {self.source!r}: choose from {', '.join(SOURCES.names())}")
        if self.readers is not None and self.pin_memory:
            raise ValueError("pin_memory has no effect on batches that another rank sends: remove it or readers")
        defaults = dict(zip(self.__struct_fields__, self.__struct_defaults__, strict=True))
        for option in self.DEPENDENT["num_workers"]:
            if self.num_workers == 0 and getattr(self, option) != defaults[option]:
                raise ValueError(f"{option} has no effect without workers: set num_workers too")

    def find_world_problem(self, world_size: int, replicas: int, samples: int) -> str | None:
        """Return what the number of ranks does not allow; None if nothing."""
        if self.files > samples:
            return f"files {self.files} are more than the {samples:,} samples"
        if self.files > 1 and self.files % replicas:
            return f"files {self.files} cannot be divided among {replicas} ranks that read: choose a multiple"
        if self.readers is None:
            return None
        if replicas != world_size:
            return "readers needs ranks that all train on their own samples: remove it, or the mesh"
        if self.readers >= world_size or world_size % self.readers:
            return (
                f"readers {self.readers} of {world_size} rank{'s' if world_size > 1 else ''}: choose fewer readers "
                "than ranks, the same number of ranks for each"
            )
        return None
