"""Input sources: where the samples of a training step come from, and how they are read.

A new source is one file with a subclass of `workloads.data.source.Source` and one row in `SOURCES`. Another package
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
    from workloads.data.source import Source


def _find_problem(name: str, found: Any) -> str | None:
    """Return what is wrong with a plug-in's source, or None."""
    from workloads.data.source import Source  # numpy: not needed to list the names

    if not isinstance(found, type) or not issubclass(found, Source):
        return "is not a subclass of workloads.data.source.Source"
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
        "memory": "workloads.data.memory:Memory",
        "hdf5": "workloads.data.hdf5:Hdf5",
        "safetensors": "workloads.data.safetensors:Safetensors",
    },
    _find_problem,
)


class DataOptions(Struct, frozen=True, kw_only=True):
    """How samples are read, for any source.

    Raises:
        ValueError: The source is unknown, or an option has no effect without another one.
    """

    DEPENDENT: ClassVar[Mapping[str, tuple[str, ...]]] = {"num_workers": ("prefetch", "worker_start")}
    """Options that have an effect with some values of another option only."""

    source: Annotated[str, Meta(description="where samples come from")] = "memory"
    read: Annotated[
        Literal["per-sample", "batched"],
        Meta(description="one read per sample, as in simple code, or one per batch"),
    ] = "batched"
    data_dir: Annotated[str | None, Meta(description="folder of the sample files [default: .data in --trace-dir]")] = (
        None
    )
    num_workers: Annotated[
        int, Meta(ge=0, description="worker processes that load batches ahead; 0 loads in the training process")
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
        defaults = dict(zip(self.__struct_fields__, self.__struct_defaults__, strict=True))
        for option in self.DEPENDENT["num_workers"]:
            if self.num_workers == 0 and getattr(self, option) != defaults[option]:
                raise ValueError(f"{option} has no effect without workers: set num_workers too")
