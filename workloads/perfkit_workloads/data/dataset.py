"""The data set class that the sources share."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor
from torch.utils.data import Dataset

from perfkit_workloads.base import DataSpec
from perfkit_workloads.data import DataOptions

Sample = dict[str, Tensor]

PRELOADED_TOGETHER: Final = 1024
"""Samples that are read at once into memory."""


class SampleDataset(Dataset[Sample]):
    """Samples behind a reader that each process opens on first use.

    File handles neither survive a fork nor can be pickled. Each process uses only handles that it opened itself, and
    none is sent to a spawned worker.

    Args:
        open_read: Opens the samples; this is what is pickled. See `perfkit_workloads.data.source.Read`.
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


def preload(dataset: Dataset[Sample], spec: DataSpec, options: DataOptions) -> SampleDataset:
    """Read all samples into memory, as `options.read` has it, and return them."""
    tensors = {
        field.name: torch.empty((spec.samples, *field.shape), dtype=getattr(torch, field.dtype))
        for field in spec.fields
    }
    batched = options.read == "batched"
    at_once = PRELOADED_TOGETHER if batched else 1
    anything: Any = dataset
    for start in range(0, spec.samples, at_once):
        numbers = list(range(start, min(start + at_once, spec.samples)))
        part = anything[numbers] if batched else anything[start]
        for name, tensor in tensors.items():
            tensor[start : start + len(numbers)] = part[name]
    return in_memory(tensors, spec.samples, options)


def in_memory(tensors: Sample, samples: int, options: DataOptions) -> SampleDataset:
    """Return samples whose tensors are shared with forked workers and sent to spawned ones."""
    pick = pick_batch if options.read == "batched" else pick_sample
    return SampleDataset(samples, partial(partial, pick, tensors))
