"""Which samples a rank reads, and in which order: the same for every source."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from torch.utils.data import DistributedSampler, Sampler

from perfkit_workloads.data import DataOptions
from perfkit_workloads.data.divided import first_samples


class EpochSampler(Protocol):
    """Samples of one rank, shuffled anew in each epoch."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the epoch."""

    def __iter__(self) -> Iterator[int]: ...

    def __len__(self) -> int: ...


def make_sampler(
    options: DataOptions, samples: int, *, replicas: int, replica: int, seed: int, batch_size: int
) -> EpochSampler:
    """Return the sampler of a rank."""
    if options.files > 1:
        own = own_files(options, replicas, replica)
        # A reader's workers serve several ranks, so that none reads for one rank only.
        workers = options.num_workers if options.readers is None else 0
        groups = [own[start::workers] for start in range(workers)] if workers and len(own) % workers == 0 else [own]
        return FileSampler(first_samples(samples, options.files), groups, seed, batch_size)
    everything: Any = range(samples)
    return DistributedSampler(everything, num_replicas=replicas, rank=replica, shuffle=True, seed=seed, drop_last=True)


def own_files(options: DataOptions, replicas: int, replica: int) -> list[int]:
    return [0] if options.files == 1 else list(range(replica, options.files, replicas))


class FileSampler(Sampler[int]):
    """Samples of some files; each batch comes from one group of files, the groups take turns.

    A loader gives its batches to its workers in turns, so that with as many groups as workers each worker reads its own
    files. Every rank has as many batches as the others: what is left over is dropped, other samples in each epoch.

    Args:
        firsts: First sample of each file, and the number of all samples.
        groups: Files of each group, as many in each.
    """

    def __init__(self, firsts: list[int], groups: list[list[int]], seed: int, batch_size: int) -> None:
        fewest = firsts[-1] // (len(firsts) - 1)
        if fewest * len(groups[0]) < batch_size:  # too few for a batch per group
            groups = [[file for group in groups for file in group]]
        self._firsts, self._groups, self._seed, self._batch_size = firsts, groups, seed, batch_size
        self._batches = fewest * len(groups[0]) // batch_size
        self._available = fewest * len(groups[0]) * len(groups)
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch

    def __len__(self) -> int:
        # With less than a batch, what there is: the loader refuses it and names the numbers.
        return self._batches * self._batch_size * len(self._groups) or self._available

    def __iter__(self) -> Iterator[int]:
        orders = [self._order(files) for files in self._groups]
        for batch in range(self._batches):
            for order in orders:
                yield from order[batch * self._batch_size : (batch + 1) * self._batch_size]

    def _order(self, files: list[int]) -> list[int]:
        samples = np.concatenate([np.arange(self._firsts[file], self._firsts[file + 1]) for file in files])
        order: list[int] = np.random.default_rng((self._seed, self._epoch, files[0])).permutation(samples).tolist()
        return order


class InTurns(Sampler[int]):
    """Batches of several samplers in turns."""

    def __init__(self, samplers: list[EpochSampler], batch_size: int) -> None:
        self._samplers, self._batch_size = samplers, batch_size

    def set_epoch(self, epoch: int) -> None:
        for sampler in self._samplers:
            sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return sum(len(sampler) // self._batch_size * self._batch_size for sampler in self._samplers)

    def __iter__(self) -> Iterator[int]:
        iterators = [iter(sampler) for sampler in self._samplers]
        for _ in range(len(self._samplers[0]) // self._batch_size):
            for one in iterators:
                for _, index in zip(range(self._batch_size), one, strict=False):
                    yield index
