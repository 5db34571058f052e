"""A data set divided among several files: each is a separate data set, with consecutive samples of the whole."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from perfkit_workloads.base import Arrays, DataSpec, SampleGenerator
from perfkit_workloads.data import DataOptions
from perfkit_workloads.data.source import Source

if TYPE_CHECKING:
    from torch.utils.data import Dataset

    from perfkit_workloads.data.source import Sample


class Part(NamedTuple):
    """Consecutive samples of a data set."""

    first: int
    """Number of the first one."""
    spec: DataSpec
    generator: SampleGenerator


class _Slice:
    """Generates the samples of a part."""

    def __init__(self, whole: SampleGenerator, spec: DataSpec, first: int) -> None:
        self._whole, self._spec, self._first = whole, spec, first

    def generate(self, spec: DataSpec, start: int, stop: int) -> Arrays:
        del spec
        return self._whole.generate(self._spec, self._first + start, self._first + stop)


def first_samples(samples: int, files: int) -> list[int]:
    """Return the first sample of each file, and the number of samples: files differ by one sample at most."""
    return [number * samples // files for number in range(files + 1)]


def divide(generator: SampleGenerator, spec: DataSpec, files: int) -> list[Part]:
    """Return the parts of the samples `spec`; each has its own fingerprint."""
    if files == 1:
        return [Part(0, spec, generator)]
    bounds = first_samples(spec.samples, files)
    return [
        Part(
            first,
            replace(spec, samples=after - first, parameters={**spec.parameters, "first_sample": first}),
            _Slice(generator, spec, first),
        )
        for first, after in pairwise(bounds)
    ]


def prepare_files(
    source: Source[Any], generator: SampleGenerator, spec: DataSpec, options: DataOptions
) -> list[Path | None]:
    """Write the files of all parts, unless they exist; as `Source.prepare`."""
    return [source.prepare(part.generator, part.spec, options) for part in divide(generator, spec, options.files)]


def open_samples(
    source: Source[Any],
    generator: SampleGenerator,
    spec: DataSpec,
    paths: list[Path | None],
    options: DataOptions,
    own: list[int],
) -> Dataset[Sample]:
    """Return the samples of all parts, of which this rank reads the parts `own` only."""
    from perfkit_workloads.data.dataset import SampleDataset, preload

    parts = divide(generator, spec, options.files)
    opened = {
        number: source.dataset(parts[number].generator, parts[number].spec, paths[number], options) for number in own
    }
    if options.preload:
        opened = {number: preload(one, parts[number].spec, options) for number, one in opened.items()}
    if len(parts) == 1:
        return opened[0]
    read = _read_batch if options.read == "batched" else _read_sample
    return SampleDataset(spec.samples, partial(partial, read, [part.first for part in parts], opened))


_Opened = Mapping[int, Any]


def _read_sample(firsts: list[int], opened: _Opened, index: int) -> Sample:
    number = bisect_right(firsts, index) - 1
    sample: Sample = opened[number][index - firsts[number]]
    return sample


def _read_batch(firsts: list[int], opened: _Opened, indices: list[int]) -> Sample:
    """Read the samples of each file together, and put them into the order of `indices`."""
    import torch

    numbers = [bisect_right(firsts, index) - 1 for index in indices]
    places: dict[int, list[int]] = {}
    for place, number in enumerate(numbers):
        places.setdefault(number, []).append(place)
    read = [opened[number][[indices[at] - firsts[number] for at in of]] for number, of in places.items()]
    if len(read) == 1:
        alone: Sample = read[0]
        return alone
    order = torch.tensor([at for of in places.values() for at in of]).argsort()
    return {name: torch.cat([one[name] for one in read])[order] for name in read[0]}
