"""What an input source is, and the one data set class that all of them share."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from torch import Tensor
from torch.utils.data import Dataset

from workloads.base import DataSpec, Workload
from workloads.data import DataOptions

Sample = dict[str, Tensor]

Read = Callable[[Any], Sample]
"""Takes a sample number or, where `read` is `batched`, a list of them; returns tensors by field."""


class Source(Protocol):
    """Somewhere that samples come from."""

    def prepare(self, workload: Workload[Any], spec: DataSpec, options: DataOptions) -> Path | None:
        """Write what is needed, once; called by one rank while the others wait.

        Returns:
            The file that holds the samples; None where there is none.

        Raises:
            StoreError: it cannot be written, or something else stands in its place.
            UsageError: options that this source cannot serve.
        """

    def dataset(
        self, workload: Workload[Any], spec: DataSpec, path: Path | None, options: DataOptions
    ) -> Dataset[Sample]:
        """Return the samples, to be read as `options.read` says; called by every rank."""


class SampleDataset(Dataset[Sample]):
    """Samples behind a `Read` that is opened on first use, once a process.

    Handles of files neither survive a fork nor can be pickled, so that a process only ever uses those it
    opened itself, and none travels to a spawned worker.

    Args:
        samples: how many there are.
        open_read: opens the samples; it is what is pickled.
    """

    def __init__(self, samples: int, open_read: Callable[[], Read]) -> None:
        self._samples = samples
        self._open = open_read
        self._read: Read | None = None
        self._pid = 0

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int | list[int]) -> Sample:
        if self._pid != os.getpid():
            self._read = None  # closes what a fork brought along: HDF5 would share its descriptor
            self._pid = os.getpid()
        if self._read is None:
            self._read = self._open()
        return self._read(index)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": None}
