"""The base class of input sources.

Importing this module, or a module that defines a source, imports neither torch nor the source's own package.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from msgspec import Struct

from perfkit_workloads.base import DataSpec, SampleGenerator
from perfkit_workloads.data import DataOptions

if TYPE_CHECKING:
    from torch import Tensor
    from torch.utils.data import Dataset

    Sample = dict[str, Tensor]

    Read = Callable[[Any], Sample]
    """Takes a sample number or, if `read` is `batched`, a list of them; returns tensors by field."""

ConfigT = TypeVar("ConfigT", bound=Struct)


class NoOptions(Struct, frozen=True, kw_only=True):
    """The options of a source that has none."""


class Source(ABC, Generic[ConfigT]):
    """A place that samples come from.

    Import torch, and the package that reads the files, inside methods or in a second module: the command line imports
    the class for its options. Every field of `Config` has a default and a `msgspec.Meta` that describes and bounds it.
    Its name begins with the source's, so that it clashes with no other option: `hdf5_chunk`.
    """

    Config: ClassVar[type[Struct]] = NoOptions
    DEPENDENT: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Options that have an effect with some values of another option only, by that option."""
    package: ClassVar[str | None] = None
    """Distribution and module that reads the files; its version is recorded in the manifest."""
    extra: ClassVar[str | None] = None
    """Extra of perfkit that installs `package`; None if none does."""
    has_files: ClassVar[bool] = True
    """Whether the samples come from files, rather than from memory or elsewhere."""

    def __init__(self, config: ConfigT) -> None:
        self.config = config

    def find_problem(self, spec: DataSpec, options: DataOptions) -> str | None:
        """Return why the source cannot provide the samples `spec` with these options; None if it can.

        Nothing is read or written: this is asked before the ranks start.
        """
        del spec
        if not self.has_files:
            for option in ("files", "preload"):
                if getattr(options, option) != getattr(DataOptions(), option):
                    return f"{option} has no effect: source {options.source} has no files; remove it"
        return None

    @abstractmethod
    def prepare(self, workload: SampleGenerator, spec: DataSpec, options: DataOptions) -> Path | None:
        """Write what is needed, once; called by one rank while the others wait.

        Returns:
            The file of the samples; None if there is no file.

        Raises:
            StoreError: It cannot be written, or something else is in its place.
            UsageError: This source does not support the options.
        """

    @abstractmethod
    def dataset(
        self, workload: SampleGenerator, spec: DataSpec, path: Path | None, options: DataOptions
    ) -> Dataset[Sample]:
        """Return the samples, for reading by `options.read`; called by every rank.

        Args:
            path: What `prepare` returned.
        """
