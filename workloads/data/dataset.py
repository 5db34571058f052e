"""The data set class that the sources share."""

import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

Sample = dict[str, Tensor]


class SampleDataset(Dataset[Sample]):
    """Samples behind a reader that each process opens on first use.

    File handles neither survive a fork nor can be pickled. Each process uses only handles that it opened itself, and
    none is sent to a spawned worker.

    Args:
        samples: Number of samples.
        open_read: Opens the samples; this is what is pickled. See `workloads.data.source.Read`.
    """

    def __init__(self, samples: int, open_read: Callable[[], Callable[[Any], Sample]]) -> None:
        self._samples = samples
        self._open = open_read
        self._read: Callable[[Any], Sample] | None = None
        self._pid = 0

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int | list[int]) -> Sample:
        if self._pid != os.getpid():
            self._read = None  # closes handles inherited by a fork: HDF5 would share their descriptors
            self._pid = os.getpid()
        if self._read is None:
            self._read = self._open()
        return self._read(index)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": None}


def pick_batch(tensors: Sample, indices: list[int]) -> Sample:
    """Copy the samples `indices` out of every tensor."""
    selected = torch.tensor(indices)
    return {name: tensor.index_select(0, selected) for name, tensor in tensors.items()}


def pick_sample(tensors: Sample, index: int) -> Sample:
    """Return a view of one sample of every tensor."""
    return {name: tensor[index] for name, tensor in tensors.items()}
