"""What one rank reads: the loader and the sampler, from the options."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple, Protocol, cast

from torch import Tensor
from torch.utils.data import Sampler

from perfkit.errors import UsageError
from perfkit_workloads.base import DataSpec, SampleGenerator
from perfkit_workloads.data import DataOptions
from perfkit_workloads.data.divided import open_samples
from perfkit_workloads.data.loader import make_loader
from perfkit_workloads.data.sampling import EpochSampler, InTurns, make_sampler, own_files
from perfkit_workloads.data.scattered import ScatteredLoader, join_readers
from perfkit_workloads.data.source import Source

Batch = dict[str, Tensor]


class Loader(Protocol):
    """Batches of one rank."""

    def __iter__(self) -> Iterator[Batch]: ...

    def __len__(self) -> int: ...


class Samples(NamedTuple):
    """What is read: the arguments of `Source.prepare`, and its results."""

    source: Source[Any]
    generator: SampleGenerator
    spec: DataSpec
    paths: list[Path | None]
    options: DataOptions


class Place(NamedTuple):
    """Which part of the samples a rank reads."""

    replicas: int
    """Number of ranks, or groups of ranks, that train on different samples."""
    replica: int
    seed: int
    batch_size: int


class Opened(NamedTuple):
    """What a rank loads."""

    loader: Loader
    sampler: EpochSampler


def open_input(samples: Samples, place: Place, timeout: timedelta | None = None) -> Opened:
    """Open the samples of this rank; called by every rank."""
    options = samples.options
    if options.readers is None:
        return _open_for(samples, place, [place.replica])
    served = join_readers(options.readers, timeout)
    if served.reads:
        opened = _open_for(samples, place, list(served.ranks))
        batches = len(opened.loader) // len(served.ranks)
        return Opened(ScatteredLoader(opened.loader, served, samples.spec, place.batch_size, batches), opened.sampler)
    sampler = _sampler(samples, place, place.replica)
    batches = len(sampler) // place.batch_size
    return Opened(ScatteredLoader(None, served, samples.spec, place.batch_size, batches), sampler)


def _open_for(samples: Samples, place: Place, replicas: list[int]) -> Opened:
    """Return a loader of the batches of `replicas` in turns."""
    options = samples.options
    samplers = [_sampler(samples, place, replica) for replica in replicas]
    files = sorted({file for replica in replicas for file in own_files(options, place.replicas, replica)})
    dataset = open_samples(samples.source, samples.generator, samples.spec, samples.paths, options, files)
    sampler = samplers[0] if len(samplers) == 1 else InTurns(samplers, place.batch_size)
    loader = make_loader(dataset, cast("Sampler[int]", sampler), options, place.batch_size)
    return Opened(cast("Loader", loader), sampler)


def _sampler(samples: Samples, place: Place, replica: int) -> EpochSampler:
    sampler = make_sampler(
        samples.options,
        samples.spec.samples,
        replicas=place.replicas,
        replica=replica,
        seed=place.seed,
        batch_size=place.batch_size,
    )
    if len(sampler) < place.batch_size:
        raise UsageError(
            f"batch_size {place.batch_size} exceeds the {len(sampler)} samples per rank: "
            "choose a smaller batch_size or more samples"
        )
    return sampler
