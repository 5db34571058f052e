"""Times how batches are fetched, in whatever process that happens: samples, transforms and collating.

What a data loader returns, its order and its randomness stay as they are. This module is imported in worker processes:
it imports nothing but the standard library until it is used there.
"""

import mmap
import os
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from perfkit.record.recording.worker_sampler import WorkerSampler

MAIN_PROCESS: Final = -1
"""Number of the worker of a loader without workers."""
MOST: Final = 2048
"""Fetches that are kept of each worker: the newest."""
_WORTH_TIMING_NS: Final = 20_000
"""Time per sample of a batch from which those of the next are timed one by one, which takes about 1 us each."""
_RECORD: Final = struct.Struct("8q")
_COUNT: Final = struct.Struct("q")
SUFFIX: Final = ".fetches"

Record = tuple[int, ...]
"""Worker, begin (absolute ns), ns of all samples, processor time of these, ns of collating, samples, the slowest
sample's index (-1: not a number), and its ns."""


class FetchFile:
    """The newest fetches of one worker, in a file of fixed size that another process reads.

    Raises:
        OSError: There is no room for the file.
    """

    def __init__(self, folder: str, worker: int) -> None:
        self._path = Path(folder, f"{os.getpid()}.{worker}{SUFFIX}")
        size = _COUNT.size + MOST * _RECORD.size
        with self._path.open("wb+") as file:
            try:
                # Its room at once: a worker that writes to a map of a sparse file is killed once the disk is full.
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:  # macOS
                    os.pwrite(file.fileno(), bytes(size), 0)
            except OSError:
                self._path.unlink(missing_ok=True)
                raise
            self._map = mmap.mmap(file.fileno(), size)
        self._count = 0

    def append(self, record: Record) -> None:
        """Add a fetch; it replaces the oldest."""
        _RECORD.pack_into(self._map, _COUNT.size + self._count % MOST * _RECORD.size, *record)
        self._count += 1
        _COUNT.pack_into(self._map, 0, self._count)

    @property
    def is_over(self) -> bool:
        """Whether nobody reads the file any more: it has been removed."""
        return not os.path.exists(self._path)


class OwnFetches(deque[Record]):
    """The newest fetches of this process."""

    def __init__(self) -> None:
        super().__init__(maxlen=MOST)
        self.is_over = False
        """Whether recording is over."""


def read_fetches(path: Path) -> list[Record]:
    """Return the fetches in a worker's file; none if it is gone or damaged."""
    try:
        content = path.read_bytes()
    except OSError:
        return []
    if len(content) < _COUNT.size + MOST * _RECORD.size:
        return []
    (count,) = _COUNT.unpack_from(content)
    return [_RECORD.unpack_from(content, _COUNT.size + index * _RECORD.size) for index in range(min(count, MOST))]


def worker_runs(path: Path) -> bool:
    """Return whether the process that writes a file still exists."""
    try:
        os.kill(int(path.name.partition(".")[0]), 0)
    except (OSError, OverflowError, ValueError):
        return False
    return True


class _Timer:
    """Times the parts of one fetch."""

    def __init__(self, worker: int, log: FetchFile | OwnFetches, sampler: "WorkerSampler | None") -> None:
        self._worker, self._log = worker, log
        self._sampler = sampler
        self.samples = self.slowest_ns = 0
        self.slowest: Any = None
        self.times_samples = True
        """Whether single samples are timed: not those that take hardly longer than timing them."""
        # All threads of a worker work for its batches; the process that trains has others, some of which spin.
        self._cpu_now = time.thread_time_ns if worker < 0 else time.process_time_ns
        self._begin_ns = self._begin = self._cpu = self._got = self._got_cpu = 0

    @property
    def is_over(self) -> bool:
        return self._log.is_over

    def stop_sampling(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()

    def begin(self) -> None:
        if self._sampler is not None:
            self._sampler.before_fetch()
        self.samples = self.slowest_ns = self._got = self._got_cpu = 0
        self.slowest = None
        self._begin_ns, self._begin, self._cpu = time.time_ns(), time.perf_counter_ns(), self._cpu_now()

    def sample(self, index: Any, begin: int) -> None:
        lasted = time.perf_counter_ns() - begin
        self.samples += 1
        if lasted > self.slowest_ns:
            self.slowest, self.slowest_ns = index, lasted

    def collate_begins(self) -> None:
        self._got, self._got_cpu = time.perf_counter_ns(), self._cpu_now()

    def end(self) -> None:
        ended = time.perf_counter_ns()
        got = self._got or ended
        index = self.slowest if isinstance(self.slowest, int) and abs(self.slowest) < 1 << 62 else -1
        cpu = min((self._got_cpu or self._cpu_now()) - self._cpu, got - self._begin)
        fields = (self._worker, self._begin_ns, got - self._begin, cpu, ended - got, self.samples, index)
        self._log.append((*fields, self.slowest_ns))
        self.times_samples = got - self._begin > _WORTH_TIMING_NS * self.samples
        if self._sampler is not None:
            self._sampler.after_fetch()


class _TimedSamples:
    """A data set in the hands of a fetcher: it times each sample, and is the data set otherwise."""

    def __init__(self, dataset: Any, timer: _Timer) -> None:
        self._dataset, self._timer = dataset, timer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def __getitem__(self, index: Any) -> Any:
        timer = self._timer
        if not timer.times_samples:
            timer.samples += 1
            return self._dataset[index]
        begin = time.perf_counter_ns()
        sample = self._dataset[index]
        timer.sample(index, begin)
        return sample


class _TimedIterator:
    """An iterator over samples that times each; not a generator, which an error would end.

    Its samples have no number: each worker has its own iterator, and a program does not know their indices in it.
    """

    def __init__(self, samples: Iterator[Any], timer: _Timer) -> None:
        self._samples, self._timer = samples, timer

    def __iter__(self) -> "_TimedIterator":
        return self

    def __next__(self) -> Any:
        timer = self._timer
        if not timer.times_samples:
            sample = next(self._samples)
            timer.samples += 1
            return sample
        begin = time.perf_counter_ns()
        sample = next(self._samples)
        timer.sample(None, begin)
        return sample


def time_fetches(fetcher: Any, worker: int, log: FetchFile | OwnFetches, sampler: "WorkerSampler | None" = None) -> Any:
    """Return a fetcher of torch's that times what it fetches until its log is over; one of another kind as it is."""
    with suppress(AttributeError):
        _hook(fetcher, _Timer(worker, log, sampler))
    return fetcher


def _hook(fetcher: Any, timer: _Timer) -> None:
    source = "dataset_iter" if hasattr(fetcher, "dataset_iter") else "dataset"
    own = {name: getattr(fetcher, name) for name in (source, "collate_fn", "fetch")}
    collate, fetch = own["collate_fn"], own["fetch"]

    def timed_collate(samples: Any) -> Any:
        timer.collate_begins()
        return collate(samples)

    def timed_fetch(index: Any) -> Any:
        if timer.is_over:
            timer.stop_sampling()
            for name, value in own.items():
                setattr(fetcher, name, value)
            return fetch(index)
        timer.begin()
        batch = fetch(index)
        timer.end()
        return batch

    kind = _TimedIterator if source == "dataset_iter" else _TimedSamples
    setattr(fetcher, source, kind(own[source], timer))
    fetcher.collate_fn = timed_collate
    fetcher.fetch = timed_fetch


class TimedWorker:
    """A `worker_init_fn` that times the worker's fetches, and then does what the program's own does."""

    def __init__(self, own: Callable[[int], None] | None, folder: str) -> None:
        self._own, self._folder = own, folder

    def __call__(self, worker: int) -> None:
        self._time(worker)
        if self._own is not None:
            self._own(worker)

    def _time(self, worker: int) -> None:
        from torch.utils.data import dataloader

        try:
            log = FetchFile(self._folder, worker)
        except OSError:  # a full disk must not fail the program
            return
        from perfkit.record.recording.worker_sampler import WorkerSampler

        sampler = WorkerSampler(self._folder, worker)
        kind: Any = dataloader._DatasetKind
        create = kind.create_fetcher
        kind.create_fetcher = staticmethod(
            lambda *args, **kwargs: time_fetches(create(*args, **kwargs), worker, log, sampler)
        )
